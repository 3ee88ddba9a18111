"""Several jobs wait for one worker: in which order a real one begins them, told by a real broker or by nobody."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as Client

from api.jobs.publishing import CeleryPublisher
from domain import dispatch
from domain.jobs import JobState, Tuner
from tests.support.servers import processes, redis
from tests.support.worker.fixtures import Bench

ROOT = Path(__file__).parents[3]


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    with redis.running() as server:
        yield server


@pytest.fixture
def ring(broker: redis.Redis) -> Iterator[Callable[[], None]]:
    """As the API does for each job."""
    made = CeleryPublisher(broker.url())
    yield made.ring
    made.close()


@pytest.fixture
def start(bench: Bench, broker: redis.Redis) -> Iterator[Callable[..., None]]:
    """Starts a worker that has some engines, and that works on its first job until ``go`` lies in the home folder."""
    with ExitStack() as stack:

        def begin(*engines: str, look_seconds: float = 600.0, url: str = broker.url()) -> None:
            command = [sys.executable, "-m", "tests.system.worker.ordered_worker", url, str(bench.home)]
            log = bench.home / "worker.log"
            process = processes.start([*command, str(look_seconds), *engines], log=log, folder=ROOT)
            stack.callback(processes.kill, process)

        yield begin


def await_(bench: Bench, condition: Callable[[], bool], seconds: float = 40.0) -> None:
    processes.wait_until(condition, seconds=seconds, what="it came so", log=bench.home / "worker.log")


def begun(bench: Bench, job_ids: list[str]) -> list[str]:
    """In the order in which they began, once all of them have ended."""
    await_(bench, lambda: all(bench.get(job_id).state is JobState.SUCCEEDED for job_id in job_ids))
    found = {job_id: bench.get(job_id) for job_id in job_ids}
    return sorted(job_ids, key=lambda job_id: (found[job_id].started_at is None, found[job_id].started_at))


def occupy(bench: Bench, start: Callable[..., None], ring: Callable[[], None]) -> None:
    """A worker of all engines that is at work, so that whatever comes now waits for it."""
    start("relay", "relax")
    first = bench.job(priority=9)
    ring()
    await_(bench, lambda: bench.get(first).state is JobState.RUNNING)


def test_jobs_begin_by_priority_and_turn_and_age_whatever_their_tuners(
    bench: Bench, start: Callable[..., None], ring: Callable[[], None]
) -> None:
    occupy(bench, start, ring)
    queued: tuple[tuple[str, Tuner, dict[str, Any]], ...] = (
        ("last", Tuner.AUTO, {"owner": "ann", "priority": 9}),
        ("a1", Tuner.METASCHEDULE, {"owner": "ann"}),
        ("a2", Tuner.AUTOTVM, {"owner": "ann"}),
        ("a3", Tuner.ANSOR, {"owner": "ann"}),
        ("b1", Tuner.AUTO, {"owner": "bob"}),
        ("b2", Tuner.METASCHEDULE, {"owner": "bob"}),
        ("urgent", Tuner.AUTOTVM, {"owner": "bob", "priority": 0}),
    )
    asked = {}
    for name, tuner, request in queued:
        asked[bench.job(tuner=tuner, **request)] = name
        ring()
    (bench.home / "go").touch()
    assert [asked[job_id] for job_id in begun(bench, list(asked))] == ["urgent", "a1", "b1", "a2", "b2", "a3", "last"]


def test_a_bell_that_the_wrong_worker_hears_is_not_lost(
    bench: Bench, broker: redis.Redis, start: Callable[..., None], ring: Callable[[], None]
) -> None:
    """The one that could serve the job hears none at all: there is no broker where it looks for one."""
    (bench.home / "go").touch()
    start("relay")
    start("relax", look_seconds=1.0, url="redis://127.0.0.1:1/0")
    for job_id in (bench.job(tuner=Tuner.AUTOTVM), bench.job(tuner=Tuner.METASCHEDULE)):
        ring()
        begun(bench, [job_id])
    with Client.from_url(broker.url()) as client:
        await_(bench, lambda: client.llen(dispatch.QUEUE) == 0)
        job_id, began = bench.job(tuner=Tuner.METASCHEDULE), time.monotonic()
        ring()
        begun(bench, [job_id])
        assert time.monotonic() - began < 10
        await_(bench, lambda: client.llen(dispatch.QUEUE) == 0)  # the other one heard it


def test_a_worker_that_is_idle_begins_at_the_bell(
    bench: Bench, start: Callable[..., None], ring: Callable[[], None]
) -> None:
    """It looks by itself every ten minutes only."""
    (bench.home / "go").touch()
    start("relay", "relax")
    warm, job_id = bench.job(), ""
    ring()
    begun(bench, [warm])
    for _ in range(3):
        job_id = bench.job()
        ring()
        began = time.monotonic()
        begun(bench, [job_id])
        assert time.monotonic() - began < 10
