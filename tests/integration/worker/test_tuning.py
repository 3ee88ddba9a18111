"""The search: its budget, failing tasks and crashing engines."""

from __future__ import annotations

import threading

import pytest

from domain import errors
from domain.jobs import EventKind, JobState, TunerOptions
from domain.records import TrialError
from tests.support.waiting import until
from tests.support.worker.fixtures import Bench
from tuner.host import devicelock, hardware
from worker.pipeline import context, tuning
from worker.pipeline.search import progress, rounds


class Clock:
    """Stands for ``time`` where only trials take any."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def trial_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial takes an eighth of a second, and nothing else takes any time."""
    clock = Clock()
    monkeypatch.setattr(rounds, "time", clock)
    bench.script.seconds_per_trial, bench.script.sleep = 0.125, clock.sleep


@pytest.mark.usefixtures("trial_time")
def test_a_budget_of_seconds_ends_the_search(bench: Bench) -> None:
    job_id = bench.succeed(trials=None, seconds=1.9)
    assert len(bench.records(job_id)) == 16
    told = [event.data for event in bench.events(job_id, EventKind.PROGRESS)]
    tuning = [event.data["share"] for event in bench.events(job_id, EventKind.STAGE) if event.data["stage"] == "tune"]
    # Of a plan with many more trials: the seconds that end it count.
    assert told[-1]["trials_planned"] > 2 * told[-1]["trials_done"]
    assert told[-1]["seconds_left"] == 0.0
    assert tuning[0] < told[0]["share"] < told[-1]["share"] == pytest.approx(tuning[1], abs=1e-4)
    shares = [event.data["share"] for event in bench.events(job_id) if "share" in event.data]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.usefixtures("trial_time")
def test_seconds_of_all_attempts_count(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds are kept with progress events: those since the last one, half a second at most, count for nothing.
    monkeypatch.setattr(progress, "_LEAST_PAUSE", 0.0)
    job_id = bench.job(trials=None, seconds=1.5)
    bench.kill_at(8)
    bench.lose_worker(job_id)
    bench.script.requests.clear()
    bench.finish(job_id)
    # Of the eighth trial nobody was told, so that its time counts for nothing.
    assert bench.script.asked("tune")[0]["seconds"] == 1.5 - 7 * 0.125
    assert len(bench.records(job_id)) == len(bench.script.measured) == 13


def test_trials_keep_the_calibration_of_their_batch(bench: Bench) -> None:
    bench.script.trial_details = {"calibration": 9.1e-5}
    job_id = bench.run(trials=2)
    assert {record.calibration for record in bench.records(job_id)} == {9.1e-5}


def test_a_failing_task_does_not_stop_the_others(bench: Bench) -> None:
    bench.script.failing = frozenset({'["dense"]'})
    job_id = bench.run(trials=32)
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED
    conv, dense = bench.tasks(job_id)
    assert conv.failures == {}
    assert conv.best_latency is not None
    assert (dense.failures, dense.best_latency) == ({"build_error": dense.trials_done}, None)
    assert any("every trial of dense failed" in note and "build_error" in note for note in bench.notes(job_id))


def test_a_hopeless_task_is_left(bench: Bench) -> None:
    bench.script.failing = frozenset({'["dense"]'})
    job_id = bench.run(trials=None, seconds=100.0, tuner_options=TunerOptions(n_trial=100))
    conv, dense = bench.tasks(job_id)
    assert dense.trials_done == 32
    assert conv.trials_done >= 100


def test_no_valid_trial_at_all_is_a_failure(bench: Bench) -> None:
    bench.script.failing = frozenset({'["dense"]', '["conv"]'})
    job_id = bench.run(trials=24)
    failure = bench.failure(job_id)
    assert failure.code == "no_valid_trial"
    assert failure.details["failures"] == {"build_error": 24}
    assert failure.message.endswith("24 × build_error")
    assert "failed to compile" in str(failure.hint)
    assert [task["name"] for task in failure.details["tasks"]] == ["conv.x86", "dense.x86"]
    assert len(bench.records(job_id)) == 24


@pytest.mark.parametrize("kind", TrialError)
def test_every_failure_has_a_hint(kind: TrialError) -> None:
    hint = tuning.hint_of({"run_error" if kind is not TrialError.RUN_ERROR else "build_error": 1, kind.value: 2})
    assert hint != tuning.hint_of({}) or kind is TrialError.UNKNOWN
    assert hint == tuning.hint_of({kind.value: 1})


def test_a_crash_in_the_middle_of_a_round_costs_no_trial(bench: Bench) -> None:
    crashed = []

    def crash(count: int) -> None:
        if count == 5 and not crashed:
            crashed.append(count)
            raise errors.EngineCrashed("relay engine: it was killed by SIGSEGV")

    bench.script.on_trial = crash
    job_id = bench.succeed(trials=32)
    assert len(bench.records(job_id)) == 32
    assert len(set(bench.script.measured)) == len(bench.script.measured) == 32
    assert any("SIGSEGV" in note for note in bench.notes(job_id))


def test_a_task_that_keeps_crashing_the_engine_is_left(bench: Bench) -> None:
    bench.script.crashing = frozenset({'["dense"]'})
    job_id = bench.succeed(trials=32)
    by_task = [record.key.workload_key for record in bench.records(job_id)]
    assert by_task.count('["dense"]') == 2
    assert by_task.count('["conv"]') == 30


def test_engines_that_only_crash_end_the_job(bench: Bench) -> None:
    bench.script.tasks = tuple(f"conv{number}" for number in range(6))
    bench.script.crashing = frozenset(f'["{name}"]' for name in bench.script.tasks)
    job_id = bench.job(trials=100)
    bench.runtime(engine_restarts=3).run_job(job_id)
    assert bench.failure(job_id).code == "engine_crashed"
    assert bench.script.started.count("relay") <= 6


def test_a_job_of_which_every_task_kills_its_engine_fails(bench: Bench) -> None:
    def die(_count: int) -> None:
        raise errors.EngineCrashed("relay engine: it was killed by SIGKILL")

    bench.script.before_trial = die
    job_id = bench.job(trials=100)
    bench.runtime(engine_restarts=50).run_job(job_id)
    failure = bench.failure(job_id)
    assert (failure.code, "SIGKILL" in failure.message) == ("engine_crashed", True)
    assert len(bench.script.asked("tune")) == 2 * len(bench.script.tasks)


def test_a_small_space_is_searched_once(bench: Bench) -> None:
    bench.script.space_size = 5
    bench.succeed(trials=100)
    assert len(bench.script.measured) == len(set(bench.script.measured)) == 10


def test_a_device_in_use_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_SILENT_SECONDS", 0.05)
    job_id = bench.job(trials=8)
    key = hardware.device().key.rpartition("/")[0]
    done = threading.Thread(target=bench.runtime().run_job, args=[job_id])
    with devicelock.hold(key, timeout=1):
        done.start()
        until(lambda: bench.notes(job_id))
        assert bench.script.asked("time") == []
    done.join(60)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert bench.notes(job_id) == ["waiting for the device: another measurement is using it"]
