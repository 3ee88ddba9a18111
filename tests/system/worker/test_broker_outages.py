"""A broker that is killed, frozen or cut off: nobody waits for it for long, and no job is lost or run twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.jobs.publishing import CeleryPublisher
from domain import errors
from domain.jobs import JobState
from storage.tables import JobRow
from tests.support.servers import processes, proxy, redis
from tests.support.worker.fixtures import Bench

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.engine, pytest.mark.alone]
_SILENT_SECONDS = 12.0
"""Longer than anyone waits for an answer."""
_SHORT_SECONDS = 4.0
"""Where connections are refused, nobody waits for one. And a broker that is frozen for so short a time answers late
instead of never."""


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    with redis.running() as server:
        yield server


@pytest.fixture
def before(broker: redis.Redis) -> Iterator[proxy.Proxy]:
    with proxy.before(broker.port) as made:
        yield made


@pytest.fixture
def worker(bench: Bench, broker: redis.Redis, before: proxy.Proxy) -> Iterator[subprocess.Popen[bytes]]:
    url = broker.url(port=before.port)
    command = [sys.executable, "-m", "tests.support.worker.scripted_worker", url, str(bench.home), "0.05"]
    process = processes.start(command, log=bench.home / "worker.log", folder=ROOT)
    yield process
    processes.kill(process)


@pytest.fixture
def publisher(broker: redis.Redis, before: proxy.Proxy) -> Iterator[CeleryPublisher]:
    made = CeleryPublisher(broker.url(port=before.port))
    yield made
    made.close()


def submit(bench: Bench, publisher: CeleryPublisher, *, trials: int = 8) -> tuple[str, bool]:
    """As the API does: the job is stored, then the bell rung. Says whether that was taken."""
    job_id = bench.job(trials=trials)
    try:
        publisher.ring()
    except errors.BrokerUnavailable:
        return job_id, False
    return job_id, True


def await_(bench: Bench, condition: Callable[[], bool], seconds: float = 60) -> None:
    processes.wait_until(condition, seconds=seconds, what="it came so", log=bench.home / "worker.log")


def claims(bench: Bench, job_id: str) -> int:
    with bench.database.reading() as session:
        row = session.get(JobRow, job_id)
        assert row
        return row.claims


def kill(broker: redis.Redis, _: proxy.Proxy) -> Callable[[], None]:
    broker.kill()
    return broker.start


def freeze(broker: redis.Redis, _: proxy.Proxy) -> Callable[[], None]:
    broker.freeze()
    return broker.thaw


def cut(_: redis.Redis, before: proxy.Proxy) -> Callable[[], None]:
    before.refusing = True
    before.cut()

    def mend() -> None:
        before.refusing = False

    return mend


def silence(_: redis.Redis, before: proxy.Proxy) -> Callable[[], None]:
    """As a cut cable: nobody is told, and what was on its way is lost."""
    before.silent = True

    def mend() -> None:
        before.cut()
        before.silent = False

    return mend


@pytest.mark.parametrize(
    ("break_it", "seconds"),
    [(kill, _SHORT_SECONDS), (freeze, _SHORT_SECONDS), (cut, _SHORT_SECONDS), (silence, _SILENT_SECONDS)],
)
def test_a_broker_that_is_away_costs_time_and_no_job(
    bench: Bench,
    broker: redis.Redis,
    before: proxy.Proxy,
    worker: subprocess.Popen[bytes],
    publisher: CeleryPublisher,
    break_it: Callable[[redis.Redis, proxy.Proxy], Callable[[], None]],
    seconds: float,
) -> None:
    at_work, sent = submit(bench, publisher, trials=200)
    assert sent
    await_(bench, lambda: bench.get(at_work).trials_done > 0)
    waiting, sent = submit(bench, publisher)
    assert sent
    mend = break_it(broker, before)
    at_break = bench.get(at_work).trials_done
    began = time.monotonic()
    late, sent = submit(bench, publisher)
    assert not sent, "nobody could take it"
    assert time.monotonic() - began < 8
    began = time.monotonic()
    later, _ = submit(bench, publisher)
    assert time.monotonic() - began < 1, "it is known to be away"
    time.sleep(seconds)
    assert worker.poll() is None, "the worker lives"
    assert bench.get(at_work).trials_done > at_break, "it works on"
    mend()
    everything = [at_work, waiting, late, later]
    await_(bench, lambda: all(bench.get(job_id).state is JobState.SUCCEEDED for job_id in everything), seconds=90)
    assert [claims(bench, job_id) for job_id in everything] == [1, 1, 1, 1], "each was run once"
    assert worker.poll() is None
