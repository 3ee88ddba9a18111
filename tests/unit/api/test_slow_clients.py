"""Nobody holds a connection, a thread or a file by being slow, going away or sending too much; of a real server."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from sqlalchemy import update

from storage.tables import ArtifactRow
from tests.support.api.factories import AUTHORIZED, TOKEN, Service, make_service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker

PATIENCE = 0.4
LARGE = 200_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = make_service(tmp_path_factory.mktemp("slow"), body_seconds=PATIENCE)
    yield made
    made.database.close()


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    with serving(service, head_seconds=PATIENCE, write_seconds=PATIENCE, header_bytes=8192) as url:
        yield url


@contextmanager
def connected(url: str, *, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(10)
        parts = urlsplit(url)
        connection.connect((parts.hostname, parts.port))
        yield connection


def said(connection: socket.socket) -> tuple[int, str]:
    """Status and code of what came until the server hung up; (0, "") when nothing did."""
    answer = b""
    try:
        while piece := connection.recv(65536):
            answer += piece
    except ConnectionResetError:
        pass
    if not answer:
        return 0, ""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)["code"]


def trickle(connection: socket.socket, text: bytes, seconds: float = 5.0) -> None:
    """A byte now and then, for as long as the server takes them."""
    deadline = time.monotonic() + seconds
    try:
        for byte in text:
            connection.sendall(bytes([byte]))
            connection.settimeout(0.05)
            try:
                if not connection.recv(1, socket.MSG_PEEK):
                    return
            except TimeoutError:
                continue
            else:
                return
            finally:
                connection.settimeout(10)
            assert time.monotonic() < deadline, "the server waits for ever"
    except (BrokenPipeError, ConnectionResetError):
        return


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_connection_that_asks_nothing_is_closed(url: str) -> None:
    with connected(url) as connection:
        assert said(connection) == (0, "")


def test_a_head_that_never_ends_is_refused(url: str) -> None:
    with connected(url) as connection:
        trickle(connection, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * 200)
        assert said(connection) == (408, "request_timeout")


def test_so_is_a_second_one_on_the_same_connection(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        trickle(connection, b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"a" * 200)
        assert said(connection) == (408, "request_timeout")


@pytest.mark.parametrize("path", ["PUT /v1/models", "POST /v1/jobs", "POST /v1/records?tuner=autotvm"])
def test_a_body_that_only_trickles_is_refused_and_leaves_nothing(url: str, service: Service, path: str) -> None:
    with connected(url) as connection:
        head = f"{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 500\r\n\r\n"
        connection.sendall(head.encode())
        trickle(connection, b"b" * 500)
        assert said(connection) == (408, "request_timeout")
    assert list(service.home.glob("blobs/incoming/*")) == []


def test_a_body_that_comes_at_a_fair_pace_may_take_longer(url: str) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(8):
            time.sleep(PATIENCE / 4)
            yield b"c" * 2000

    answer = httpx.put(f"{url}/v1/models", content=chunks(), headers=AUTHORIZED, trust_env=False)
    assert answer.status_code == 201


def test_a_caller_that_hangs_up_half_way_leaves_nothing(
    url: str, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    incoming = service.home / "blobs" / "incoming"
    with connected(url) as connection:
        head = (
            f"PUT /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 90000000\r\n\r\n"
        )
        connection.sendall(head.encode() + b"d" * 500_000)
        assert eventually(lambda: any(incoming.iterdir()))
    assert eventually(lambda: not any(incoming.iterdir()))
    assert eventually(lambda: len(service.app.state.services.uploads) == 0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.fixture(scope="module")
def large(url: str, service: Service) -> tuple[bytes, Path]:
    """A request for a bundle that is mostly a hole, larger than the kernel's buffers, and its file."""
    with httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False) as http:
        model = http.put("/v1/models", content=b"static large").json()["id"]
        job = http.post("/v1/jobs", json={"model": model}).json()["id"]
        ScriptedWorker(service).run(job)
        artifact = http.get(f"/v1/artifacts/{http.get(f'/v1/jobs/{job}').json()['artifact_id']}").json()
    file = service.blobs.path(artifact["digest"])
    file.chmod(0o644)
    os.truncate(file, LARGE)
    with service.database.transaction() as session:
        session.execute(update(ArtifactRow).values(size_bytes=LARGE))
    head = f"GET {artifact['download']} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    return head.encode(), file


def test_a_reader_that_takes_nothing_is_cut_off(url: str, large: tuple[bytes, Path]) -> None:
    request, file = large

    def is_open() -> bool:
        return any(opened.path == str(file) for opened in psutil.Process().open_files())

    with connected(url, receive_buffer=4096) as connection:
        connection.sendall(request)
        assert eventually(is_open)
        assert eventually(lambda: not is_open()), "the file is still open for a reader that takes nothing"


def test_a_reader_that_is_only_slow_goes_on(url: str, large: tuple[bytes, Path]) -> None:
    request, _ = large
    with connected(url, receive_buffer=4096) as connection:
        connection.sendall(request)
        slow_until = time.monotonic() + 5 * PATIENCE
        while time.monotonic() < slow_until:
            assert connection.recv(1500)
            time.sleep(PATIENCE / 20)
        received = 0
        while received < LARGE // 4 and (piece := connection.recv(1_000_000)):
            received += len(piece)
        assert received >= LARGE // 4


def test_headers_that_are_too_large(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-Large: " + b"e" * 20_000)
        assert said(connection) == (431, "headers_too_large")


def test_a_long_workload_key_still_fits(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    with serving(service) as url:
        answer = httpx.get(f"{url}/v1/records", params={"workload": "k" * 60_000}, headers=AUTHORIZED, trust_env=False)
    service.database.close()
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["nonsense", "bytes in the path", "header name", "two lengths", "NUL", "TLS"],
)
def test_what_is_no_http_is_refused_in_a_problem_document(url: str, request_bytes: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(request_bytes)
        assert said(connection)[0] in (400, 408)
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_the_server_does_not_tell_its_make(url: str) -> None:
    assert "server" not in httpx.get(f"{url}/healthz", trust_env=False).headers
