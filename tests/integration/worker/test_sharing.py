"""One job over many workers: who takes part, what is offered to whom, and what it costs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest

from domain.jobs import JobState
from domain.ports import Canceled
from domain.shared_rounds import RoundState
from storage import shared_rounds, workers
from tests.support.worker.fixtures import Bench
from tests.support.worker.team import LEADER, Team, check_whole, states
from tuner.host import devicelock
from tuner.results import timing
from worker.pipeline.search import helping, leading


def test_helpers_share_the_trials_of_a_job(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(2)
    job_id = bench.job(trials=192)
    crew.run(job_id)
    check_whole(bench, job_id, 192)
    shares = bench.by_worker(job_id)
    assert set(shares) == {LEADER, *(each.id for each in crew.helpers)}
    assert min(shares.values()) >= 24
    assert crew.failed == []
    rounds = sum(crew.rounds.values())
    assert f"2 other workers ran {rounds} rounds of this job's trials" in bench.notes(job_id)
    # The finishing stages ran once, and helpers asked for nothing but trials.
    assert bench.script.started.count("onnx") == timing.LEAST_PROCESSES
    assert len(bench.script.asked("extract")) == 1
    outcome = [event.data for event in bench.events(job_id) if event.data.get("stage") == "tune"]
    assert [each["status"] for each in outcome] == ["started", "finished"]


@pytest.mark.parametrize(
    "other",
    [
        {"lock_place": "MainThread"},
        {"toolchains": ()},
        {"current_job": "j-another"},
        {"release": "0.0.1"},
    ],
)
def test_workers_that_cannot_help_are_not_asked(
    bench: Bench, team: Callable[[int], Team], other: dict[str, Any]
) -> None:
    crew = team(1)
    with bench.database.transaction() as session:
        (known,) = workers.known(session)
        workers.beat(session, replace(known, **other))
    job_id = bench.job(trials=16)
    crew.run(job_id)
    check_whole(bench, job_id, 16)
    assert crew.threads == {}


@pytest.mark.parametrize("withdrawn", [True, False])
def test_whoever_finds_a_round_gone_looks_at_once_what_became_of_it(
    withdrawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = leading.Sharing(MagicMock())
    rounds._out = {7: MagicMock(id=7, state=RoundState.OPEN)}
    monkeypatch.setattr(shared_rounds, "withdraw", lambda *_: [7] if withdrawn else [])
    assert rounds.withdraw(everything=False) is withdrawn
    assert rounds.is_due() is not withdrawn


def test_a_helper_leaves_for_a_job_that_waits(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(1)
    helper = crew.helpers[0]
    helper._is_wanted_elsewhere = lambda: bool(bench.by_worker(job_id)[helper.id])  # type: ignore[method-assign]
    job_id = bench.job(trials=96)
    crew.leader.call_help = lambda job_id, idle: None if crew.threads else crew.call(job_id, idle)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert crew.rounds[helper.id] >= 1


def test_a_budget_of_seconds_ends_all_of_them(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(2)
    bench.script.seconds_per_trial = 0.02
    job_id = bench.job(trials=None, seconds=1.5)
    crew.run(job_id)
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED
    assert len(bench.by_worker(job_id)) == 3
    progress = [event.data for event in bench.events(job_id) if "trials_done" in event.data and "seconds" in event.data]
    assert progress[-1]["seconds"] <= 1.5 + 1.0


def test_a_workload_that_moves_is_told_as_new(bench: Bench, team: Callable[[int], Team]) -> None:
    """An engine that searched it before would propose what somebody else has measured since."""
    bench.script.tasks = ["conv", "dense"]
    crew = team(2)
    job_id = bench.job(trials=160)
    crew.run(job_id)
    check_whole(bench, job_id, 160)
    assert any(each.get("fresh") for each in bench.script.asked("tune"))


def test_the_leaders_own_round_is_offered_to_nobody_while_it_waits_for_the_device(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = team(2)

    @contextlib.contextmanager
    def hold(*_: Any, canceled: Callable[[], bool], **__: Any) -> Iterator[None]:
        if threading.current_thread().name not in crew.threads:
            for _ in range(5):
                assert not canceled()
                time.sleep(0.02)
        yield

    monkeypatch.setattr(devicelock, "hold", hold)
    job_id = bench.job(trials=192)
    crew.run(job_id)
    check_whole(bench, job_id, 192)
    assert len(bench.by_worker(job_id)) > 1


def test_a_helper_whose_device_is_taken_keeps_no_leader_waiting(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = team(1)
    monkeypatch.setattr(helping, "_DEVICE_SECONDS", 0.2)

    @contextlib.contextmanager
    def hold(*_: Any, canceled: Callable[[], bool], **__: Any) -> Iterator[None]:
        while threading.current_thread().name in crew.threads:
            if canceled():
                raise Canceled
            time.sleep(0.02)
        yield

    monkeypatch.setattr(devicelock, "hold", hold)
    job_id = bench.job(trials=96)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert set(bench.by_worker(job_id)) == {LEADER}
    assert states(bench, job_id) == Counter()
