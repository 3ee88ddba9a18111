"""One job over workers that measure on devices behind a tracker, which keeps the queue for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from domain.jobs import JobState, RpcOptions, RunnerKind, Tuner
from domain.shared_rounds import RoundState
from storage import shared_rounds, workers
from tests.support.worker.fixtures import Bench
from tests.support.worker.team import LEADER, Team, check_whole, gathered, states
from tuner.host import devicelock
from worker import clock
from worker.pipeline.search import helping, rounds

pytestmark = pytest.mark.alone

BOARD: dict[str, Any] = {
    "target": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    "threads": 4,
    "runner": RunnerKind.RPC,
    "rpc": RpcOptions(tracker="board:9190", key="rasp4b"),
    "tuner": Tuner.AUTOTVM,
}


@pytest.fixture
def team(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Team]]:
    """Workers of one host."""
    with gathered(bench, monkeypatch) as make:
        monkeypatch.setattr(devicelock, "place", lambda: "here")

        def gather(size: int) -> Team:
            made = make(size)
            with bench.database.transaction() as session:
                for each in workers.known(session):
                    workers.beat(session, replace(each, lock_place="here"))
            return made

        yield gather


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> list[RoundState]:
    """What became of the rounds, noted before they are cleared away with their search."""
    found: list[RoundState] = []
    forget = shared_rounds.forget

    def noting(session: Session, job_id: str) -> int:
        for state, number in states(bench, job_id).items():
            found.extend([RoundState(state)] * number)
        return forget(session, job_id)

    monkeypatch.setattr(shared_rounds, "forget", noting)
    return found


def test_workers_of_one_host_share_a_job_on_devices_elsewhere(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(1)
    job_id = bench.job(trials=96, **BOARD)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    shares = bench.by_worker(job_id)
    assert set(shares) == {LEADER, crew.helpers[0].id}
    assert min(shares.values()) >= 16


def test_a_helper_keeps_its_round_while_it_waits_for_the_only_board(
    bench: Bench, team: Callable[[int], Team], ended: list[RoundState]
) -> None:
    """For longer than a claim lasts."""
    crew, board, waited = team(1), threading.Lock(), []
    helper = crew.helpers[0]
    helper.settings = helper.settings.model_copy(update={"lease_seconds": 0.5})

    def queue(_: int) -> None:
        if threading.current_thread().name == helper.id and not waited:
            waited.append(True)
            time.sleep(1.0)
        assert board.acquire(timeout=60)

    bench.script.before_trial = queue
    bench.script.on_trial = lambda _: board.release()
    job_id = bench.job(trials=96, **BOARD)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert waited
    assert bench.by_worker(job_id)[helper.id] >= 8
    assert RoundState.DONE in ended
    assert RoundState.LOST not in ended


class Clock:
    """Stands for ``time`` at the leader, where nothing but its waiting for helpers takes any."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.waits = 0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        self.seconds += seconds
        time.sleep(0.01)


def test_what_a_leader_waits_for_a_helper_in_a_queue_is_no_tuning_time(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, clock = team(1), Clock()
    monkeypatch.setattr(rounds, "time", clock)
    bench.script.queue_seconds = 1e6

    def queue(_: int) -> None:
        if threading.current_thread().name == crew.helpers[0].id:
            deadline = time.monotonic() + 60
            while clock.waits < 40 and time.monotonic() < deadline:
                time.sleep(0.01)

    bench.script.before_trial = queue
    # Had the wait been tuning time, nothing would be left of it for the rest.
    job_id = bench.job(trials=96, seconds=3.0, **BOARD)
    crew.run(job_id)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert clock.waits >= 40
    assert len(bench.records(job_id)) == 96


class Late:
    """Stands for ``worker.clock`` at a helper, where an hour passes at once."""

    def __init__(self) -> None:
        self.passed = timedelta(0)

    def now(self) -> datetime:
        return clock.now() + self.passed


def test_what_a_helper_waits_in_a_queue_is_not_taken_from_the_rounds_that_stand_offered(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, late, given = team(1), Late(), []
    helper = crew.helpers[0]
    monkeypatch.setattr(helping, "clock", late)
    # One that came back later would know of no queue.
    monkeypatch.setattr(helping, "_IDLE_SECONDS", 600.0)
    bench.script.queue_seconds = 3600.0

    def queue(_: int) -> None:
        if threading.current_thread().name == helper.id and not late.passed:
            # The next round is offered to the helper while it has this one.
            deadline = time.monotonic() + 60
            while not states(bench, job_id).get(RoundState.OPEN) and time.monotonic() < deadline:
                time.sleep(0.01)
            late.passed = timedelta(hours=1)

    def hear(method: str, params: dict[str, Any]) -> None:
        if method == "tune" and threading.current_thread().name == helper.id:
            given.append(params["seconds"])

    bench.script.before_trial, bench.script.refuse = queue, hear
    job_id = bench.job(trials=384, seconds=1800.0, **BOARD)
    crew.run(job_id)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert late.passed
    assert len(given) > 1
    assert min(given) > 0.0, given
