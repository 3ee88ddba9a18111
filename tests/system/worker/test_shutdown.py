"""A worker that is told to end: softly at first, at once when told again."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from domain.jobs import JobState
from tests.support.servers import processes
from tests.support.servers.redis import Redis
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted_worker import BEGUN

pytestmark = [pytest.mark.engine, pytest.mark.alone]
ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def worker(bench: Bench, broker: Redis, *, trial_seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "tests.support.worker.scripted_worker",
        broker.url(),
        str(bench.home),
        str(trial_seconds),
    ]
    process = processes.start(command, log=bench.home / "worker.log", folder=ROOT)
    try:
        yield process
    finally:
        processes.kill(process)


def wait_until(bench: Bench, reached: Callable[[], bool], what: str) -> None:
    processes.wait_until(reached, seconds=60, what=what, log=bench.home / "worker.log")


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]],
    ids=["SIGTERM", "SIGINT", "by a service manager and the supervisor"],
)
def test_a_worker_gives_its_job_back_within_seconds(
    bench: Bench, redis_server: Redis, numbers: list[signal.Signals]
) -> None:
    job_id = bench.job(trials=100)
    with worker(bench, redis_server, trial_seconds=0.05) as process:
        wait_until(bench, lambda: len(bench.records(job_id)) >= 5, "trials are stored")
        began = time.monotonic()
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.05)
        process.wait(timeout=20)
        assert time.monotonic() - began < 8
    job = bench.get(job_id)
    assert (job.state, job.attempts, job.lease) == (JobState.QUEUED, 0, None)
    kept = len(bench.records(job_id))
    assert kept >= 5
    with worker(bench, redis_server, trial_seconds=0.01):
        wait_until(bench, lambda: bench.get(job_id).state is JobState.SUCCEEDED, "it ends")
    assert len(bench.records(job_id)) == 100, "no trial was lost or paid twice"


def test_a_worker_that_is_told_twice_ends_at_once(bench: Bench, redis_server: Redis) -> None:
    job_id = bench.job(trials=100)
    with worker(bench, redis_server, trial_seconds=60) as process:
        # From then on, the engine listens to nobody.
        wait_until(bench, lambda: BEGUN in (bench.home / "worker.log").read_text(), BEGUN)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2.5)
        # Told more than once: on a busy machine the worker may have heard the first too late for the second to count.
        for _ in range(4):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=3)
                break
        assert process.returncode == -signal.SIGKILL
    assert not bench.get(job_id).state.is_final
    heir = bench.runtime()
    heir.clean_up()
    heir.run_job(job_id)
    assert bench.get(job_id).state is JobState.SUCCEEDED
