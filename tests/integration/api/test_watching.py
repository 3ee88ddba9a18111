"""Streams of events over real connections: many, slow and lost ones."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from api.jobs import events as live_events
from domain.jobs import EventKind
from storage import events, jobs
from tests.support.api.factories import TOKEN, Service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker
from tests.support.waiting import until


def note(service: Service, job: str, texts: Sequence[str]) -> None:
    with service.database.transaction() as session:
        for text in texts:
            events.append(session, job, EventKind.NOTE, {"message": text}, now=datetime.now(UTC))


def cancel(service: Service, job: str) -> None:
    with service.database.transaction() as session:
        jobs.request_cancel(session, job, now=datetime.now(UTC))


def connect(url: str, job: str, after: int = 0) -> socket.socket:
    """A watcher that reads nothing by itself, and has little room for what it has not read."""
    parts = urlsplit(url)
    watcher = socket.socket()
    watcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    watcher.connect((parts.hostname, parts.port))
    watcher.settimeout(10)
    headers = f"Host: {parts.netloc}\r\nAuthorization: Bearer {TOKEN}\r\nLast-Event-ID: {after}\r\n"
    watcher.sendall(f"GET /v1/jobs/{job}/events HTTP/1.1\r\n{headers}\r\n".encode())
    return watcher


def rest(watcher: socket.socket) -> str:
    """Everything up to the end of a chunked response."""
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        part = watcher.recv(65536)
        assert part, "the connection was lost"
        received += part
    return received.decode()


def test_many_watchers_share_one_look_at_the_database(service: Service, client: TestClient, job: str) -> None:
    with serving(service) as url, ThreadPoolExecutor(1) as pool:
        watchers = [connect(url, job) for _ in range(40)]
        assert all(b"200 OK" in watcher.recv(15, socket.MSG_WAITALL) for watcher in watchers)
        before = threading.active_count()
        pool.submit(ScriptedWorker(service, trials=3).run, job).result()
        streams = [rest(watcher) for watcher in watchers]
        assert threading.active_count() <= before + 3, "watchers must not take threads"
        hub = service.app.state.services.events
        until(lambda: hub._task.done())
    for watcher in watchers:
        watcher.close()
    with service.database.reading() as session:
        ids = [str(event.id) for event in events.after(session, job, 0, 1000)]
    for stream in streams:
        assert [line[4:] for line in stream.splitlines() if line.startswith("id: ")] == ids


def test_a_watcher_that_does_not_read_misses_nothing_and_holds_up_nobody(
    service: Service, client: TestClient, job: str
) -> None:
    long = "x" * 20_000
    with serving(service) as url:
        slow, quick = connect(url, job), connect(url, job)
        for start in range(0, 600, 20):
            note(service, job, [f"{number} {long if number % 3 == 0 else ''}" for number in range(start, start + 20)])
            time.sleep(0.02)
        cancel(service, job)
        told = rest(quick)
        late = rest(slow)
    slow.close()
    quick.close()
    messages = [[line.split()[2] for line in text.splitlines() if '"message"' in line] for text in (told, late)]
    assert messages[0] == messages[1] == [f'"{number}' for number in range(600)]


def test_a_watcher_that_goes_away_is_forgotten(service: Service, client: TestClient, job: str) -> None:
    hub = service.app.state.services.events
    with serving(service) as url:
        watcher = connect(url, job)
        until(lambda: bool(hub._feeds))
        watcher.close()
        until(lambda: not hub._feeds)
        until(lambda: hub._task.done())


def test_a_browser_is_told_when_nothing_more_will_come(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service, trials=1).run(job)
    with service.database.reading() as session:
        ids = [event.id for event in events.after(session, job, 0, 1000)]
    again = client.get(f"/v1/jobs/{job}/events?after={ids[-2]}")
    assert (again.status_code, again.text.count("\nid: ")) == (200, 1)
    # A browser that lost its connection names the event in a header, and the address is still the first one.
    assert client.get(f"/v1/jobs/{job}/events?after=0", headers={"Last-Event-ID": str(ids[-1])}).status_code == 204


def test_a_watcher_ahead_of_all_events_holds_up_nobody(service: Service, client: TestClient, job: str) -> None:
    hub = service.app.state.services.events
    with serving(service) as url:
        watchers = [connect(url, job, after=2**62)]
        until(lambda: bool(hub._feeds))
        watchers.append(connect(url, job))
        until(lambda: hub._feeds[job].watchers == 2)
        cancel(service, job)
        streams = [rest(watcher) for watcher in watchers]
    for watcher in watchers:
        watcher.close()
    assert ["canceled" in stream for stream in streams] == [True, True]
    assert [stream.count("\nid: ") for stream in streams] == [1, 2]


def test_silence_is_filled(service: Service, client: TestClient, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.jobs.events._COMMENT_SECONDS", 0.05)
    with serving(service) as url, contextlib.closing(connect(url, job)) as watcher:
        received = b""
        while received.count(b": ping\n\n") < 3:
            received += watcher.recv(65536)
    assert received.count(b"event: state\n") == 1


def test_open_streams_end_when_the_server_stops(service: Service, client: TestClient, job: str) -> None:
    with serving(service) as url:
        watchers = [connect(url, job) for _ in range(3)]
        assert all(b"200 OK" in watcher.recv(15, socket.MSG_WAITALL) for watcher in watchers)
        began = time.monotonic()
    assert time.monotonic() - began < 2, "the server waited for a stream"
    for watcher in watchers:
        assert rest(watcher).count("event: state\n") == 1, "it ended as a whole response"
        watcher.close()


@pytest.mark.parametrize("trouble", [OperationalError("SELECT", {}, Exception("locked")), RuntimeError("a fault")])
def test_trouble_with_the_database_passes(
    service: Service, client: TestClient, job: str, trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = events.newer, []

    def newer(session: Session, last_ids: Mapping[str, int], limit: int) -> object:
        if not failed:
            failed.append(last_ids)
            raise trouble
        return real(session, last_ids, limit)

    monkeypatch.setattr(events, "newer", newer)
    monkeypatch.setattr(live_events, "_PAUSE_AFTER_TROUBLE", 0.05)
    with serving(service) as url:
        watcher = connect(url, job)
        until(lambda: bool(failed))
        cancel(service, job)
        assert "canceled" in rest(watcher)
        watcher.close()
