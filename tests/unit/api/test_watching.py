"""Streams of events over real connections: many, slow and lost ones."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from api.live import event_hub
from api.live.event_hub import EventHub
from api.live.events import EventStream
from api.services import Services
from domain.events import EventKind
from storage import events, jobs
from tests.support.api.factories import AUTHORIZED, TOKEN, Service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker


def note(service: Service, job: str, texts: Sequence[str]) -> None:
    with service.database.transaction() as session:
        for text in texts:
            events.append(session, job, EventKind.NOTE, {"message": text}, now=datetime.now(UTC))


def cancel(service: Service, job: str) -> None:
    with service.database.transaction() as session:
        jobs.request_cancel(session, job, now=datetime.now(UTC))


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def connect(url: str, job: str) -> socket.socket:
    """A watcher that reads nothing by itself, and has little room for what it has not read."""
    parts = urlsplit(url)
    watcher = socket.socket()
    watcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    watcher.connect((parts.hostname, parts.port))
    watcher.settimeout(10)
    request = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    watcher.sendall(request.encode())
    return watcher


def rest(watcher: socket.socket) -> str:
    """Everything up to the end of a chunked response."""
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        part = watcher.recv(65536)
        assert part, "the connection was lost"
        received += part
    return received.decode()


def looking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "events"]


def test_many_watchers_share_one_thread(service: Service, client: TestClient, job: str) -> None:
    with serving(service) as url, ThreadPoolExecutor(1) as pool:
        watchers = [connect(url, job) for _ in range(40)]
        assert all(b"200 OK" in watcher.recv(15, socket.MSG_WAITALL) for watcher in watchers)
        page = httpx.get(f"{url}/jobs/{job}", headers=AUTHORIZED, trust_env=False)
        assert page.headers["Tunesmith-Pause"] == "16", "the more watch, the more seldom they look at the whole page"
        before = threading.active_count()
        pool.submit(ScriptedWorker(service, trials=3).run, job).result()
        streams = [rest(watcher) for watcher in watchers]
        assert len(looking()) <= 1
        assert threading.active_count() <= before + 2, "watchers must not take threads"
        until(lambda: not looking())
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
        until(lambda: bool(hub._watchers))
        watcher.close()
        until(lambda: not hub._watchers)
        assert not hub._feeds
        until(lambda: not looking())


def test_a_browser_is_told_when_nothing_more_will_come(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service, trials=1).run(job)
    with service.database.reading() as session:
        ids = [event.id for event in events.after(session, job, 0, 1000)]
    again = client.get(f"/v1/jobs/{job}/events?after={ids[-2]}")
    assert (again.status_code, again.text.count("\nid: ")) == (200, 1)
    # A browser that lost its connection names the event in a header, and the address is still the first one.
    assert client.get(f"/v1/jobs/{job}/events?after=0", headers={"Last-Event-ID": str(ids[-1])}).status_code == 204


def test_silence_is_filled(service: Service, client: TestClient, job: str) -> None:
    services: Services = service.app.state.services

    async def first_pings() -> list[bytes]:
        stream = EventStream(services, job, 0, ping_seconds=0.05)
        found: list[bytes] = []
        async for piece in stream.body_iterator:
            assert isinstance(piece, bytes)
            found.append(piece)
            if len(found) == 3:
                break
        await stream.body_iterator.aclose()  # type: ignore[attr-defined]
        return found

    found = asyncio.run(first_pings())
    assert json.loads(found[0].split(b"data: ")[1].split(b"\n")[0])["state"] == "queued"
    assert found[1:] == [b": ping\n\n"] * 2


@pytest.mark.parametrize("trouble", [OperationalError("SELECT", {}, Exception("locked")), RuntimeError("a fault")])
def test_trouble_with_the_database_passes(
    service: Service, client: TestClient, job: str, trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = events.tail, []

    def tail(session: Session, job_id: str, limit: int) -> object:
        if not failed:
            failed.append(job_id)
            raise trouble
        return real(session, job_id, limit)

    monkeypatch.setattr(events, "tail", tail)
    monkeypatch.setattr(event_hub, "_PAUSE_AFTER_TROUBLE", 0.05)
    with serving(service) as url:
        watcher = connect(url, job)
        until(lambda: bool(failed))
        cancel(service, job)
        assert "canceled" in rest(watcher)
        watcher.close()


def test_the_more_watch_the_longer_the_pauses(service: Service) -> None:
    hub = EventHub(service.database, poll_seconds=0.3, stopping=threading.Event())
    for count, pause in ((0, 0.3), (50, 0.3), (500, 2.0)):
        hub._watchers = {"j": set(range(count))}  # type: ignore[arg-type]
        assert hub._pause() == pause
