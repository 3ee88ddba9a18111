"""Several jobs wait for one worker: the most urgent goes first, whenever it came."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from domain import dispatch
from domain.jobs import JobState
from storage import jobs
from tests.support.worker.fixtures import Bench
from worker import app as worker_app
from worker import broker, clock, reaper
from worker.runtime import Runtime

ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def running(command: list[str], folder: Path) -> Iterator[None]:
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], Any], bench: Bench) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline, (bench.home / "output").read_text()[-3000:]
        time.sleep(0.02)


def answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return True
    return False


@pytest.fixture
def broker_url(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with running(broker.command(bench.home), bench.home):
        until(lambda: answers(broker.socket_path(bench.home)), bench)
        yield broker.url(bench.home)


@pytest.fixture
def tell(bench: Bench, broker_url: str) -> Iterator[Callable[[str], None]]:
    """Publish a job's message, as the API does."""
    app = Celery("tunesmith.test", broker=broker_url)
    app.conf.update(broker_transport_options=dispatch.transport_options(), task_ignore_result=True)
    send = worker_app.publisher(app, expires=60)

    def publish(job_id: str) -> None:
        with bench.database.transaction() as session:
            jobs.mark_published(session, job_id, now=clock.now())
        send(bench.get(job_id), [])

    yield publish
    app.close()


def test_the_most_urgent_goes_first(bench: Bench, broker_url: str, tell: Callable[[str], None]) -> None:
    first = bench.job(priority=9)
    tell(first)
    with running([sys.executable, "-m", "tests.system.worker.ordered_worker", broker_url, str(bench.home)], bench.home):
        until(lambda: bench.get(first).state is JobState.RUNNING, bench)
        # The worker is busy: whatever it had read ahead would now come next, urgent or not.
        waiting = {bench.job(priority=priority): priority for priority in (9, 5, 5)}
        for job_id in waiting:
            tell(job_id)
        lost = bench.job(priority=0)
        late = bench.job(priority=1)
        _publish_what_waits(bench.runtime(republish_seconds=0.001), tell, only=lost)
        tell(late)
        (bench.home / "go").touch()
        everything = {first: -1, lost: 0, late: 1, **waiting}
        until(lambda: all(bench.get(job_id).state is JobState.SUCCEEDED for job_id in everything), bench)
    began = sorted(everything, key=lambda job_id: bench.get(job_id).started_at or clock.now())
    assert began == sorted(everything, key=lambda job_id: everything[job_id])


def _publish_what_waits(runtime: Runtime, tell: Callable[[str], None], *, only: str) -> None:
    """A round of the reaper, for a job whose message was lost."""
    assert reaper.reap(runtime, lambda job, _: tell(job.id) if job.id == only else None)[0] == only
