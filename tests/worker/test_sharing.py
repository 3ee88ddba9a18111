"""One job over many workers: threads with runtimes of their own, over one database and one script."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest
from sqlalchemy.exc import OperationalError

from domain import errors
from domain.jobs import JobState, Stage
from domain.ports import Canceled
from domain.shared_rounds import Offer, RoundState, SharedRound
from domain.workers import Worker
from storage import shared_rounds, tuning_tasks, workers
from storage.tables import SharedRoundRow
from tests.worker.conftest import Bench, Killed
from tests.worker.scripted import HELLO
from tuner import devicelock
from worker import clock, hellos
from worker.pipeline import helping, running, sharing
from worker.pipeline.work import Outcome, Work
from worker.runtime import Runtime

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


@pytest.fixture
def team(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Team]]:
    monkeypatch.setattr(hellos, "ask", lambda name, *_: None if name == "relax" else HELLO)
    monkeypatch.setattr(sharing, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(sharing, "_TEND_SECONDS", 0.01)
    monkeypatch.setattr(helping, "_PATIENCE_SECONDS", 0.5)

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

    yield make
    for each in made:
        for runtime in [each.leader, *each.helpers]:
            runtime.shutdown.set()
        each.join()


def states(bench: Bench, job_id: str) -> Counter[str]:
    with bench.database.reading() as session:
        rows = session.query(SharedRoundRow).where(SharedRoundRow.job_id == job_id).all()
        return Counter(row.state for row in rows)


def by_worker(bench: Bench, job_id: str) -> Counter[str]:
    return Counter(record.worker_id for record in bench.records(job_id))


def check_whole(bench: Bench, job_id: str, trials: int) -> None:
    """The whole budget was spent, and nothing twice."""
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert (job.trials_done, len(bench.records(job_id))) == (trials, trials)
    assert len(bench.script.measured) == len(set(bench.script.measured)) == trials


def test_helpers_share_the_trials_of_a_job(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(2)
    job_id = bench.job(trials=192)
    crew.run(job_id)
    check_whole(bench, job_id, 192)
    shares = by_worker(bench, job_id)
    assert set(shares) == {LEADER, *(each.id for each in crew.helpers)}
    assert min(shares.values()) >= 24
    assert crew.failed == []
    # The finishing stages ran once, and helpers asked for nothing but trials.
    assert bench.script.started.count("reference") == 1
    assert len(bench.script.asked("extract")) == 1
    outcome = [event.data for event in bench.events(job_id) if event.data.get("stage") == "tune"]
    assert [each["status"] for each in outcome] == ["started", "finished"]


def test_without_idle_workers_nothing_is_offered(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(0)
    job_id = bench.job(trials=64)
    crew.run(job_id)
    check_whole(bench, job_id, 64)
    assert set(by_worker(bench, job_id)) == {LEADER}


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
    job_id = bench.job(trials=48)
    crew.run(job_id)
    check_whole(bench, job_id, 48)
    assert crew.threads == {}


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
    # What it had journaled and not stored may be measured once more by somebody else, who cannot know of it.
    assert len(bench.script.measured) - len(set(bench.script.measured)) <= 1


def test_a_helper_stores_what_one_before_it_on_its_host_had_journaled(
    bench: Bench, team: Callable[[int], Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = team(2)
    job_id = bench.job(trials=16)

    def stop(_: Work) -> Outcome:
        raise Killed

    # The leader comes as far as its plan and is slow from there.
    steps = [(stage, stop if stage is Stage.TUNE else step) for stage, step in running.STEPS]
    monkeypatch.setattr(running, "STEPS", tuple(steps))
    with pytest.raises(Killed):
        crew.leader.run_job(job_id)

    def die(count: int) -> None:
        if count == 3:
            raise Killed

    bench.script.on_trial = die
    first = offer(bench, job_id, first_trial=0)
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


def offer(bench: Bench, job_id: str, *, first_trial: int) -> SharedRound:
    """A round of the first task, as the leader would offer it."""
    job = bench.get(job_id)
    assert job.placement is not None
    assert job.lease is not None
    with bench.database.transaction() as session:
        (first, *_) = tuning_tasks.of_job(session, job_id)
        return shared_rounds.open_round(
            session,
            job_id,
            job.lease.attempt,
            Offer(
                workload_key=first.extracted.workload_key,
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
            raise errors.EngineCrashed("relay engine: it was ended by SIGSEGV")

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


@pytest.mark.parametrize("withdrawn", [True, False])
def test_whoever_finds_a_round_gone_looks_at_once_what_became_of_it(
    withdrawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = sharing.Sharing(MagicMock())
    rounds._out = {7: MagicMock(id=7, state=RoundState.OPEN)}
    monkeypatch.setattr(shared_rounds, "withdraw", lambda *_: [7] if withdrawn else [])
    assert rounds.withdraw(everything=False) is withdrawn
    assert rounds.is_due() is not withdrawn


def test_canceling_stops_everybody(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(2)
    bench.script.seconds_per_trial = 0.02
    job_id = bench.job(trials=6000)

    def cancel(count: int) -> None:
        if count == 40:
            bench.cancel(job_id)

    bench.script.on_trial = cancel
    crew.run(job_id)
    assert bench.get(job_id).state is JobState.CANCELED
    stored = len(bench.records(job_id))
    time.sleep(0.2)
    assert len(bench.records(job_id)) == stored < 500
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
    assert 1 <= by_worker(bench, job_id)[helper.id] <= 8


def test_a_helper_leaves_for_a_job_that_waits(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(1)
    helper = crew.helpers[0]
    helper._is_wanted_elsewhere = lambda: bool(by_worker(bench, job_id)[helper.id])  # type: ignore[method-assign]
    job_id = bench.job(trials=96)
    crew.leader.call_help = lambda job_id, idle: None if crew.threads else crew.call(job_id, idle)
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert crew.rounds[helper.id] >= 1


def test_who_takes_a_job_over_ends_its_helpers_claims(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(2)
    bench.script.seconds_per_trial = 0.02
    job_id = bench.job(trials=120)
    helped = threading.Event()

    def die(_: int) -> None:
        if threading.current_thread().name == "MainThread" and by_worker(bench, job_id)[crew.helpers[0].id]:
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


def test_a_budget_of_seconds_ends_all_of_them(bench: Bench, team: Callable[[int], Team]) -> None:
    crew = team(2)
    bench.script.seconds_per_trial = 0.02
    job_id = bench.job(trials=None, seconds=1.5)
    crew.run(job_id)
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED
    assert len(by_worker(bench, job_id)) == 3
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
    assert len(by_worker(bench, job_id)) > 1


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
    assert set(by_worker(bench, job_id)) == {LEADER}
    assert states(bench, job_id) == Counter()
