"""``serve`` is ready once its API answers and the fleet knows its workers, not before."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from domain import errors
from serve.readiness import Readiness
from storage import workers
from storage.database import Database
from tests.support.waiting import until
from tests.support.worker.fixtures import Bench
from worker import identity


@contextmanager
def answering(*statuses: int) -> Iterator[str]:
    """An API that answers so, the last one for ever."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response((left.pop(0) if len(left) > 1 else left[0]) if self.path == "/readyz" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def readiness(bench: Bench, url: str, *pids: int | None, api: float = 10, worker: float = 10) -> Readiness:
    # One of its own, as it is closed when all is known.
    database = Database(bench.database.url.render_as_string())
    return Readiness(url, database, lambda: list(pids), logs=Path("/logs"), api_seconds=api, worker_seconds=worker)


def beat(bench: Bench, pid: int, *, start: str | None = None) -> None:
    """The sign of life of the process, or of an earlier one with that pid."""
    worker_id = f"{identity.hostname()}:{pid}:{start or identity._start(pid)}"
    with bench.database.transaction() as session:
        workers.beat(session, replace(bench.runtime().describe(), id=worker_id, pid=pid))


def test_it_is_ready_when_the_api_answers_and_the_worker_has_said_hello(bench: Bench) -> None:
    with answering(503, 503, 200) as url:
        found = readiness(bench, url, os.getpid())
        time.sleep(0.6)
        assert not found.is_over(), "nobody knows the worker yet"
        beat(bench, os.getpid())
        until(found.is_over)
        found.check()


def test_each_of_several_workers_is_waited_for(bench: Bench) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        with answering(200) as url:
            beat(bench, os.getpid())
            found = readiness(bench, url, os.getpid(), other.pid)
            time.sleep(0.4)
            assert not found.is_over()
            beat(bench, other.pid)
            until(found.is_over)
            found.check()
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("pid", [None, 1])
def test_a_worker_that_says_nothing_is_told_of(bench: Bench, pid: int | None) -> None:
    with answering(200) as url:
        beat(bench, os.getpid())
        found = readiness(bench, url, pid, worker=0.3)
        until(found.is_over)
        with pytest.raises(errors.ConfigurationError, match=r"no heartbeat from its worker within 0\.3 s") as raised:
            found.check()
    assert "/logs" in str(raised.value.hint)


def test_a_worker_of_another_life_with_the_same_pid_does_not_count(bench: Bench) -> None:
    with answering(200) as url:
        earlier = identity._start(os.getpid()).replace(".", "0.")
        beat(bench, os.getpid(), start=earlier)
        found = readiness(bench, url, os.getpid(), worker=0.3)
        until(found.is_over)
        with pytest.raises(errors.ConfigurationError):
            found.check()


def test_an_api_that_does_not_answer_is_told_of(bench: Bench) -> None:
    with answering(503) as url:
        found = readiness(bench, url, os.getpid(), api=0.3)
        until(found.is_over)
    with pytest.raises(errors.ConfigurationError, match=r"did not become ready within 0\.3 s"):
        found.check()


def test_an_error_that_nobody_thought_of_is_no_wait_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object, **__: object) -> object:
        raise TypeError("a row of another release")

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr("serve.readiness.workers.known", break_down)
    with answering(200) as url:
        found = readiness(bench, url, os.getpid())
        until(found.is_over)
    with pytest.raises(errors.ConfigurationError, match="a row of another release"):
        found.check()


def test_a_database_that_is_away_for_a_moment_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    known, failures = workers.known, [OperationalError("", {}, Exception("away"))] * 2

    def sometimes(session: object, **options: object) -> object:
        if failures:
            raise failures.pop()
        return known(session, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("serve.readiness.workers.known", sometimes)
    with answering(200) as url:
        beat(bench, os.getpid())
        found = readiness(bench, url, os.getpid())
        until(found.is_over)
        found.check()
    assert not failures


def test_nobody_is_asked_any_more_once_it_is_closed(bench: Bench) -> None:
    with answering(503) as url:
        found = readiness(bench, url, os.getpid())
        found.close()
        until(found.is_over)
