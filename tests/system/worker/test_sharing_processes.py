"""One job over real worker processes, by a real broker; the engines are the benchmark's, which measure nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import scale, scale_engine
from domain.jobs import JobState
from storage.blobs.local import LocalBlobStore
from storage.database import Database, migrate
from tests.support.worker.fixtures import Stored
from tuner.search.planning import ROUND_TRIALS

pytestmark = pytest.mark.engine

TRIALS = scale_engine.TASKS * 6


@dataclass(kw_only=True)
class Fleet(Stored):
    folder: Path
    workers: list[str]
    log: Path

    def queue(self) -> str:
        return scale.queue(self.database, LocalBlobStore(self.folder / "blobs"), trials=TRIALS)

    def stored(self, job_id: str) -> set[str]:
        """As ``measured`` spells them."""
        lines = [json.loads(record.schedule) for record in self.records(job_id)]
        return {f"{line['key']} {line['index']}" for line in lines}

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, self._logs()
            time.sleep(0.05)

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted((self.folder / "fleet").glob("*.log")))

    def measured(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line != scale_engine.ROUND]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    url = f"sqlite:///{tmp_path / 'db.sqlite3'}"
    database = Database(url)
    migrate(database)
    program, log = scale.engine(tmp_path, seconds=0.05)
    with contextlib.ExitStack() as stack:
        stack.callback(database.close)
        broker_url = stack.enter_context(scale.messages(tmp_path))
        environment = scale.environment(
            program,
            database_url=url,
            broker_url=broker_url,
            blobs=tmp_path / "blobs",
            TUNESMITH_LEASE_SECONDS="3",
            TUNESMITH_HEARTBEAT_SECONDS="1",
        )
        workers = stack.enter_context(scale.running(tmp_path / "fleet", 2, environment, database))
        yield Fleet(database=database, folder=tmp_path, workers=workers, log=log)


def kill(worker_id: str) -> None:
    os.kill(int(worker_id.split(":")[-2]), signal.SIGKILL)


def test_two_processes_share_a_job(fleet: Fleet) -> None:
    job_id = fleet.queue()
    fleet.until(lambda: fleet.get(job_id).state.is_final)
    assert fleet.get(job_id).state is JobState.SUCCEEDED, fleet.get(job_id).failure
    shares = fleet.by_worker(job_id)
    assert set(shares) == set(fleet.workers)
    assert shares.total() == TRIALS == len(fleet.measured()) == len(set(fleet.measured()))
    assert any("1 other worker ran" in note for note in fleet.notes(job_id))


@pytest.mark.parametrize("victim", ["leader", "helper"])
def test_either_may_be_killed(fleet: Fleet, victim: str) -> None:
    """The other one brings the job to its end; what was stored is not measured again."""
    job_id = fleet.queue()
    fleet.until(lambda: len(fleet.by_worker(job_id)) == 2)
    lease = fleet.get(job_id).lease
    assert lease is not None
    killed = lease.worker_id if victim == "leader" else next(each for each in fleet.workers if each != lease.worker_id)
    kill(killed)
    stored = fleet.stored(job_id)
    fleet.until(lambda: fleet.get(job_id).state.is_final)
    job = fleet.get(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert job.trials_done == fleet.by_worker(job_id).total() == TRIALS
    # An engine goes on for a moment when its worker is gone, and nobody on another host knows of what it did then.
    twice = {trial for trial, times in Counter(fleet.measured()).items() if times > 1}
    assert not twice & stored
    assert len(fleet.measured()) <= TRIALS + 2 * ROUND_TRIALS
