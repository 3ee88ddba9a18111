"""A request that came before is answered without being read: as it would be answered otherwise, to the byte."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from api.services import Services
from domain.jobs import JobState
from storage import jobs
from storage.tables import TokenRow
from tests.support.api.factories import Service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker


class Caller:
    """One connection, and what the server did for each answer."""

    def __init__(self, connection: socket.socket, services: Services, token: str) -> None:
        self._connection = connection
        self._token = token
        self._rest = b""
        self.known: list[bool] = []
        real = services.known_answers.answer

        def noted(request: bytes, defaults: list[tuple[bytes, bytes]]) -> bytes | None:
            answer = real(request, defaults)
            self.known.append(answer is not None)
            return answer

        services.known_answers.answer = noted  # type: ignore[method-assign,assignment]

    def request(self, path: str, *more: str, method: str = "GET", version: str = "1.1") -> bytes:
        lines = [f"{method} {path} HTTP/{version}", "Host: here", f"Authorization: Bearer {self._token}", *more]
        return "\r\n".join([*lines, "", ""]).encode()

    def ask(self, path: str, *more: str) -> tuple[str, bytes]:
        self.send(self.request(path, *more))
        return self.answer()

    def send(self, content: bytes) -> None:
        self._connection.sendall(content)

    def answer(self) -> tuple[str, bytes]:
        """Head, without the date, and body."""
        content, self._rest = self._rest, b""
        while b"\r\n\r\n" not in content:
            content += self._piece()
        head, _, body = content.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        length = int(found[1]) if found else 0
        while len(body) < length:
            body += self._piece()
        body, self._rest = body[:length], body[length:]
        return re.sub(r"(?im)^(date|x-request-id): .*\r\n", "", head.decode()), body

    def _piece(self) -> bytes:
        piece = self._connection.recv(65536)
        assert piece, "the server hung up"
        return piece


@pytest.fixture
def token(client: TestClient) -> str:
    return str(client.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}).json()["token"])


@pytest.fixture
def running(service: Service, job: str) -> str:
    ScriptedWorker(service, trials=3).begin(job)
    return job


@contextmanager
def calling(service: Service, token: str) -> Iterator[Caller]:
    with serving(service) as url, socket.socket() as connection:
        connection.settimeout(10)
        parts = urlsplit(url)
        connection.connect((parts.hostname, parts.port))
        yield Caller(connection, service.app.state.services, token)


def sorted_head(head: str) -> list[str]:
    first, *lines = head.lower().split("\r\n")
    return [first, *sorted(lines)]


def test_the_same_bytes_get_the_same_answer(service: Service, token: str, running: str) -> None:
    path = f"/v1/jobs/{running}"
    with calling(service, token) as caller:
        (read_head, read_body), (known_head, known_body) = caller.ask(path), caller.ask(path)
        assert caller.known == [False, True]
        assert known_body == read_body
        assert sorted_head(known_head) == sorted_head(read_head)
        assert caller.ask("/healthz")[1]
        counted = service.app.state.services.metrics.text().decode()
    assert 'tunesmith_http_requests_total{method="GET",route="/v1/jobs/{job_id}",status="200"} 2.0' in counted


def test_a_change_of_state_is_told_at_once(service: Service, token: str, running: str) -> None:
    path = f"/v1/jobs/{running}"
    with calling(service, token) as caller:
        for _ in range(3):
            assert b'"state":"running"' in caller.ask(path)[1]
        with service.database.transaction() as session:
            jobs.request_cancel(session, running, now=datetime.now(UTC))
            assert jobs.get(session, running).state is JobState.CANCELING
        assert b'"state":"canceling"' in caller.ask(path)[1]
        assert caller.known == [False, True, True, False]


def test_other_commits_cost_it_nothing(service: Service, client: TestClient, token: str, running: str) -> None:
    path = f"/v1/jobs/{running}"
    with calling(service, token) as caller:
        caller.ask(path)
        assert client.post("/v1/tokens", json={"name": "other", "scopes": ["read"]}).status_code == 201
        caller.ask(path)
        assert caller.known == [False, True]


def test_a_revoked_token_is_refused(service: Service, client: TestClient, token: str, running: str) -> None:
    path = f"/v1/jobs/{running}"
    with calling(service, token) as caller:
        assert [caller.ask(path)[0][:12] for _ in range(2)] == ["HTTP/1.1 200"] * 2
        made = client.get("/v1/tokens").json()["tokens"]
        assert client.delete(f"/v1/tokens/{made[0]['id']}").is_success
        assert caller.ask(path)[0].startswith("HTTP/1.1 401")


def test_a_token_revoked_by_another_process_is_refused_within_a_second(
    service: Service, client: TestClient, token: str, running: str
) -> None:
    path, callers = f"/v1/jobs/{running}", service.app.state.services.callers
    now = [100.0]
    callers._clock = callers._kept._clock = lambda: now[0]
    with calling(service, token) as caller:
        caller.ask(path)
        now[0] += 1.5
        assert caller.ask(path)[0].startswith("HTTP/1.1 200")
        assert caller.known == [False, True]
        with service.database.transaction() as session:
            session.execute(update(TokenRow).values(revoked_at=datetime.now(UTC)))
        now[0] += 1.5
        assert caller.ask(path)[0].startswith("HTTP/1.1 401")


def test_too_many_are_refused(service: Service, running: str, token: str) -> None:
    services: Services = service.app.state.services
    services.known_answers.buckets._burst, services.known_answers.buckets._per_second = 3, 0.01
    with calling(service, token) as caller:
        codes = [caller.ask(f"/v1/jobs/{running}")[0][9:12] for _ in range(5)]
        assert codes == ["200", "200", "200", "429", "429"]
        assert caller.known[:3] == [False, True, True]


@pytest.mark.parametrize(
    "header", ["If-None-Match: *", "Range: bytes=0-1", "X-Request-ID: mine", "Cookie: a=b", "Content-Length: 0"]
)
def test_what_may_ask_for_something_else_is_read(service: Service, token: str, running: str, header: str) -> None:
    with calling(service, token) as caller:
        for _ in range(2):
            caller.ask(f"/v1/jobs/{running}", header)
        assert caller.known == [False, False]


def test_only_whole_requests_alone_are_known(service: Service, token: str, running: str) -> None:
    with calling(service, token) as caller:
        one = caller.request(f"/v1/jobs/{running}")
        caller.send(one + one)
        assert caller.answer()[0].startswith("HTTP/1.1 200")
    with calling(service, token) as caller:
        caller.ask(f"/v1/jobs/{running}")
        caller.send(one[:20])
        caller.send(one[20:])
        assert caller.answer()[0].startswith("HTTP/1.1 200")
        assert not any(caller.known)


def test_requests_that_come_together_are_each_answered(service: Service, token: str, running: str) -> None:
    """And never taken for the last of them."""
    with calling(service, token) as caller:
        cancel = caller.request(f"/v1/jobs/{running}:cancel", "Content-Length: 0", method="POST")
        for _ in range(2):
            caller.send(cancel + caller.request(f"/v1/jobs/{running}"))
            assert caller.answer()[0].startswith("HTTP/1.1 403")
            assert caller.answer()[0].startswith("HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/j-none", "/healthz", "/v1/jobs/{job}/events"])
def test_other_routes_are_read(service: Service, token: str, running: str, path: str) -> None:
    with calling(service, token) as caller:
        caller.ask(path.format(job=running))
        assert not service.app.state.services.known_answers._kept._found


def test_a_short_token_of_the_service_is_compared_each_time(service: Service, running: str) -> None:
    """Or somebody could try as many as they like against what is known."""
    with calling(service, "a-token") as caller:
        for _ in range(2):
            assert caller.ask(f"/v1/jobs/{running}")[0].startswith("HTTP/1.1 200")
        assert caller.known == [False, False]
