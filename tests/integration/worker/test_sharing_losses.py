"""One job over many workers of which some fail, are ended, or lose what they work on."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from domain import errors
from domain.jobs import JobState, Stage
from domain.ports import OnEvent
from domain.shared_rounds import Offer, RoundState, SharedRound
from domain.stage_results import StageResult
from storage import shared_rounds, tuning_tasks
from tests.support.worker.fixtures import Bench, Killed
from tests.support.worker.scripted import ScriptedEngine
from tests.support.worker.team import LEADER, Team, check_whole, states
from worker import clock
from worker import runtime as worker_runtime
from worker.pipeline import running
from worker.pipeline.context import JobContext


def test_a_helper_that_is_killed_loses_its_round_and_no_trial(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(1)
    bench.script.seconds_per_trial = 0.02
    dead = crew.helpers[0]
    crew.helpers[0].settings = dead.settings.model_copy(update={"lease_seconds": 0.5})

    def die(_: int) -> None:
        if threading.current_thread().name == dead.id:
            bench.script.on_trial = lambda _: None
            raise Killed

    bench.script.on_trial = die
    job_id = bench.job(trials=96)
    crew.leader.run_job(job_id)
    crew.join()
    assert [type(each) for each in crew.failed] == [Killed]
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED
    assert job.trials_done == len(bench.records(job_id)) == 96
    # What it had spooled and not stored may be measured once more by somebody else, who cannot know of it.
    assert len(bench.script.measured) - len(set(bench.script.measured)) <= 1


def test_a_helper_stores_what_one_before_it_on_its_host_had_spooled(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = team(2)
    job_id = planned(bench, crew, monkeypatch)
    bench.kill_at(3)
    first = offer(bench, job_id)
    with pytest.raises(Killed):
        crew.helpers[0].help_job(job_id)
    assert len(bench.records(job_id)) == 2
    with bench.database.transaction() as session:
        assert shared_rounds.expire(session, [first.id], now=clock.now() + timedelta(seconds=60)) == 1
    second = offer(bench, job_id, first_trial=2)
    assert crew.helpers[1].help_job(job_id) == 1
    assert len(bench.records(job_id)) == 10
    assert len(bench.script.measured) == len(set(bench.script.measured)) == 10
    with bench.database.reading() as session:
        assert shared_rounds.get(session, second.id).state is RoundState.DONE


def test_a_helper_that_cannot_help_rests_from_that_job(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = team(1)
    (helper,) = crew.helpers
    job_id = planned(bench, crew, monkeypatch)
    asked: list[str] = []

    def crash(method: str, _: dict[str, Any]) -> None:
        if method == "tune":
            asked.append(method)
            raise errors.EngineCrashed("relay engine: it was killed by SIGSEGV")

    bench.script.refuse = crash
    for task in range(3):
        offer(bench, job_id, task=task)
    helper.help_job(job_id)
    assert len(asked) == 2
    helper.help_job(job_id)
    assert len(asked) == 2
    monkeypatch.setattr(worker_runtime, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 61))
    helper.help_job(job_id)
    assert len(asked) == 3


def test_a_helper_without_room_for_an_engine_rests_from_that_job(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = team(1)
    job_id = planned(bench, crew, monkeypatch)
    offer(bench, job_id, task=0)
    full = []

    def start(*_: object) -> None:
        full.append(OSError(errno.ENOSPC, "No space left on device"))
        raise full[-1]

    monkeypatch.setattr(bench.script, "start", start)
    for _ in range(2):
        assert crew.helpers[0].help_job(job_id) == 0
    assert len(full) == 1


def planned(bench: Bench, crew: Team, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job whose leader came as far as its plan and is slow from there."""

    def stop(_: JobContext) -> StageResult:
        raise Killed

    job_id = bench.job(trials=16)
    steps = [(stage, stop if stage is Stage.TUNE else step) for stage, step in running.STEPS]
    monkeypatch.setattr(running, "STEPS", tuple(steps))
    with pytest.raises(Killed):
        crew.leader.run_job(job_id)
    return job_id


def offer(bench: Bench, job_id: str, *, first_trial: int = 0, task: int = 0) -> SharedRound:
    """A round of one of the tasks, as the leader would offer it."""
    job = bench.get(job_id)
    assert job.placement is not None
    assert job.lease is not None
    with bench.database.transaction() as session:
        chosen = tuning_tasks.of_job(session, job_id)[task]
        return shared_rounds.open_round(
            session,
            job_id,
            job.lease.attempt,
            Offer(
                workload_key=chosen.extracted.workload_key,
                tuner="autotvm",
                target=job.placement.target.identity,
                device_key=job.placement.device.key,
                toolchain=job.placement.toolchain.identity,
                request={"tuner": "autotvm"},
                trials=8,
                first_trial=first_trial,
                seconds_limit=None,
                lock_place="the leader's",
            ),
            now=clock.now(),
        )


def test_the_engine_of_a_helper_that_crashes_costs_its_round_alone(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(1)
    crashes: list[str] = []

    def crash(method: str, params: dict[str, Any]) -> None:
        if method == "tune" and threading.current_thread().name == crew.helpers[0].id and not crashes:
            crashes.append(params["workload_key"])
            raise errors.EngineCrashed("relay engine: it was killed by SIGSEGV")

    bench.script.refuse = crash
    job_id = bench.job(trials=96)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert len(crashes) == 1
    assert any("SIGSEGV" in note for note in bench.notes(job_id))
    # That workload is the leader's from then on.
    theirs = {record.key.workload_key for record in bench.records(job_id) if record.worker_id != LEADER}
    assert crashes[0] not in theirs
    assert theirs


def test_a_helper_whose_database_was_away_goes_on_with_its_round(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(1)
    away: list[int] = []

    def go_away(count: int) -> None:
        if threading.current_thread().name == crew.helpers[0].id and not away:
            away.append(count)
            raise OperationalError("INSERT", {}, Exception("server closed the connection unexpectedly"))

    bench.script.on_trial = go_away
    job_id = bench.job(trials=96)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert away


def test_canceling_stops_everybody(bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch) -> None:
    crew = team(2)
    job_id = bench.job(trials=6000)
    told, asking, measured = threading.local(), threading.Lock(), []
    tune = ScriptedEngine._tune

    def listen(engine: ScriptedEngine, params: dict[str, Any], on_event: OnEvent, canceled: Callable[[], bool]) -> Any:
        told.canceled = canceled
        return tune(engine, params, on_event, canceled)

    def cancel(count: int) -> None:
        # Of several threads none need see the very number.
        if count >= 40 and len(bench.by_worker(job_id)) == 3 and asking.acquire(blocking=False):
            bench.cancel(job_id)
            measured.append(len(bench.script.measured))

    def wait(_: int) -> None:
        deadline = time.monotonic() + 30
        while measured and not told.canceled() and time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setattr(ScriptedEngine, "_tune", listen)
    bench.script.before_trial, bench.script.on_trial = wait, cancel
    crew.run(job_id)
    assert bench.get(job_id).state is JobState.CANCELED
    # Each ended what it was at, and at most one more, which it had begun before it was told.
    assert 40 <= len(bench.script.measured) <= measured[0] + 2 * 3
    # Everybody has ended, so nothing more comes.
    assert len(bench.records(job_id)) <= len(bench.script.measured)
    assert states(bench, job_id)[RoundState.OPEN] == states(bench, job_id)[RoundState.CLAIMED] == 0
    assert crew.failed == []


def test_a_helper_that_shuts_down_gives_its_round_back(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(1)
    helper = crew.helpers[0]

    def leave(_: int) -> None:
        if threading.current_thread().name == helper.id:
            helper.shutdown.set()

    bench.script.on_trial = leave
    job_id = bench.job(trials=96)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert 1 <= bench.by_worker(job_id)[helper.id] <= 8


def test_who_takes_a_job_over_ends_its_helpers_claims(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(2)
    bench.script.seconds_per_trial = 0.02
    job_id = bench.job(trials=120)
    helped = threading.Event()

    def die(_: int) -> None:
        if threading.current_thread().name == "MainThread" and bench.by_worker(job_id)[crew.helpers[0].id]:
            bench.script.on_trial = lambda _: None
            helped.set()
            raise Killed

    bench.script.on_trial = die
    with pytest.raises(Killed):
        crew.leader.run_job(job_id)
    assert helped.is_set()
    bench.bury(job_id)
    heir = bench.runtime()
    heir.call_help = crew.call
    heir.run_job(job_id)
    crew.join()
    job = bench.get(job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)
    assert job.trials_done == len(bench.records(job_id)) == 120
    # A helper of the first attempt may have been about to store a trial: it must not, and that one is measured again.
    assert len(bench.script.measured) - len(set(bench.script.measured)) <= len(crew.helpers)
