"""Many workers at one job: threads with runtimes of their own, over one database and one script."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from domain.jobs import JobState
from domain.workers import Worker
from storage import workers
from storage.tables import SharedRoundRow
from tests.support.worker.scripted import HELLO
from tuner.host import devicelock
from worker import clock, engines
from worker.pipeline.search import helping, leading
from worker.runtime import Runtime

if TYPE_CHECKING:
    from tests.support.worker.fixtures import Bench

LEADER = "elsewhere:1:1"


class Team:
    """A leader, and helpers that answer its calls."""

    def __init__(self, bench: Bench, size: int) -> None:
        self.bench = bench
        self.leader = bench.runtime()
        self.helpers = [bench.runtime() for _ in range(size)]
        self.threads: dict[str, threading.Thread] = {}
        self.failed: list[BaseException] = []
        self.rounds: Counter[str] = Counter()
        self.leader.call_help = self.call
        for runtime in self.helpers:
            described = replace(runtime.describe(), lock_place=runtime.id, last_seen_at=clock.now())
            with bench.database.transaction() as session:
                workers.beat(session, described)

    def call(self, job_id: str, idle: Sequence[Worker]) -> None:
        for worker in idle:
            thread = self.threads.get(worker.id)
            if thread is None or not thread.is_alive():
                runtime = next(each for each in self.helpers if each.id == worker.id)
                self.threads[worker.id] = threading.Thread(target=self._help, args=[runtime, job_id], name=worker.id)
                self.threads[worker.id].start()

    def _help(self, runtime: Runtime, job_id: str) -> None:
        try:
            self.rounds[runtime.id] += runtime.help_job(job_id)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.failed.append(error)

    def run(self, job_id: str) -> None:
        self.leader.run_job(job_id)
        self.join()
        for error in self.failed:
            raise error

    def join(self) -> None:
        for thread in self.threads.values():
            thread.join(30)
            assert not thread.is_alive()


@contextlib.contextmanager
def gathered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Team]]:
    """Makes teams of so many helpers, and ends them with the block."""
    monkeypatch.setattr(engines, "ask_hello", lambda name, *_: None if name == "relax" else HELLO)
    monkeypatch.setattr(leading, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(leading, "_TEND_SECONDS", 0.01)
    monkeypatch.setattr(helping, "_IDLE_SECONDS", 0.5)

    # Every thread is a host of its own.
    @contextlib.contextmanager
    def hold(*_: Any, **__: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(devicelock, "hold", hold)
    monkeypatch.setattr(devicelock, "place", lambda: threading.current_thread().name)
    bench.script.tasks = [f"conv{number}" for number in range(6)]
    bench.script.seconds_per_trial = 0.01
    made: list[Team] = []

    def make(size: int) -> Team:
        made.append(Team(bench, size))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            for runtime in [each.leader, *each.helpers]:
                runtime.shutdown.set()
            each.join()


def states(bench: Bench, job_id: str) -> Counter[str]:
    with bench.database.reading() as session:
        rows = session.query(SharedRoundRow).where(SharedRoundRow.job_id == job_id).all()
        return Counter(row.state for row in rows)


def check_whole(bench: Bench, job_id: str, trials: int) -> None:
    """The whole budget was spent, and nothing twice."""
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert (job.trials_done, len(bench.records(job_id))) == (trials, trials)
    assert len(bench.script.measured) == len(set(bench.script.measured)) == trials
