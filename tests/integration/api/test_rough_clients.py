"""Clients that go away, send too much or speak no HTTP, on real connections."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.api.factories import AUTHORIZED, TOKEN, Service, open_service
from tests.support.api.live import serving
from tests.support.waiting import until


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with open_service(tmp_path_factory.mktemp("rough")) as made:
        yield made


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    with serving(service, header_bytes=8192) as url:
        yield url


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        connection.settimeout(10)
        parts = urlsplit(url)
        connection.connect((parts.hostname, parts.port))
        yield connection


def refused(connection: socket.socket) -> int:
    """The status that came before the server hung up: uvicorn's own answer, in plain text."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"text/plain" in head
    assert body
    return int(head.split()[1])


def test_a_caller_that_hangs_up_half_way_leaves_nothing(
    url: str, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    incoming = service.home / "blobs" / "incoming"
    with connected(url) as connection:
        head = (
            f"PUT /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 90000000\r\n\r\n"
        )
        connection.sendall(head.encode() + b"d" * 500_000)
        until(lambda: any(incoming.iterdir()))
    until(lambda: not any(incoming.iterdir()))
    until(lambda: len(service.app.state.services.uploads) == 0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_headers_that_are_too_large(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-Large: " + b"e" * 20_000)
        assert refused(connection) == 400


def test_a_long_workload_key_still_fits(tmp_path: Path) -> None:
    with open_service(tmp_path) as service, serving(service) as url:
        answer = httpx.get(f"{url}/v1/records", params={"workload": "k" * 60_000}, headers=AUTHORIZED, trust_env=False)
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
def test_what_is_no_http_is_refused(url: str, request_bytes: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(request_bytes)
        assert refused(connection) == 400
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_the_server_does_not_tell_its_make(url: str) -> None:
    assert "server" not in httpx.get(f"{url}/healthz", trust_env=False).headers
