"""Jobs that lose their worker, their lease or their reason, at every stage."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from domain import errors
from domain.jobs import JobState, Stage
from domain.stage_results import PlanResult, StageResult
from tests.support.waiting import until
from tests.support.worker import scripted
from tests.support.worker.fixtures import Bench, Killed
from worker.pipeline import running
from worker.pipeline.context import JobContext

Step = Callable[[JobContext], StageResult]


@pytest.fixture
def ran() -> Counter[Stage]:
    return Counter()


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch, ran: Counter[Stage]) -> Callable[..., None]:
    """Call something before or after the work of a stage, the first time only."""

    def install(chosen: Stage, *, before: Callable[..., Any] | None = None, after: Callable[..., Any] | None = None):
        left = [before, after]

        def wrap(stage: Stage, step: Step) -> Step:
            def run(context: JobContext) -> StageResult:
                ran[stage] += 1
                if stage is chosen and left[0]:
                    action, left[0] = left[0], None
                    action(context)
                result = step(context)
                if stage is chosen and left[1]:
                    action, left[1] = left[1], None
                    action(context)
                return result

            return run

        monkeypatch.setattr(running, "STEPS", tuple((stage, wrap(stage, step)) for stage, step in running.STEPS))

    return install


def _die(_: JobContext) -> None:
    raise Killed


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_job_goes_on_at_its_stage(
    bench: Bench, around: Callable[..., None], ran: Counter[Stage], stage: Stage, when: str
) -> None:
    around(stage, **{when: _die})
    job_id = bench.job(trials=16)
    bench.lose_worker(job_id)
    bench.runtime().run_job(job_id)
    job = bench.get(job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)
    assert ran == {each: 2 if each is stage else 1 for each in Stage}
    assert len(bench.script.measured) == len(set(bench.script.measured)) == 16


@pytest.mark.parametrize("trial", [1, 5, 8, 9, 20])
def test_no_trial_is_paid_twice(bench: Bench, trial: int) -> None:
    bench.kill_at(trial)
    job_id = bench.job(trials=24)
    bench.lose_worker(job_id)
    assert len(bench.records(job_id)) == trial - 1
    bench.finish(job_id)
    assert len(bench.records(job_id)) == 24
    assert len(bench.script.measured) == len(set(bench.script.measured)) == 24
    assert bench.get(job_id).trials_done == 24


def test_half_a_spool_line_is_no_trial(bench: Bench) -> None:
    def die(count: int) -> None:
        if count == 4:
            (spool,) = (bench.work(job_id) / "spool").rglob("*.jsonl")
            spool.write_text(spool.read_text()[:-40])
            raise Killed

    bench.script.on_trial = die
    job_id = bench.job(trials=16)
    bench.lose_worker(job_id)
    bench.finish(job_id)
    assert len(bench.records(job_id)) == 16


@pytest.mark.parametrize("stage", [Stage.VERIFY, Stage.BENCHMARK, Stage.PUBLISH])
def test_lost_files_are_made_again_and_judged_again(
    bench: Bench, around: Callable[..., None], ran: Counter[Stage], stage: Stage
) -> None:
    around(stage, before=_die)
    job_id = bench.job(trials=16)
    bench.lose_worker(job_id)
    shutil.rmtree(bench.work(job_id))
    bench.finish(job_id)
    begun = list(Stage)[: list(Stage).index(stage) + 1]
    # Plan and trials are in the database.
    assert {each for each in Stage if ran[each] == 2} == {*begun} - {Stage.PLAN, Stage.TUNE}
    assert len(bench.script.measured) == 16


def test_a_build_whose_note_a_power_failure_emptied_is_made_again(bench: Bench, around: Callable[..., None]) -> None:
    around(Stage.COMPILE, after=_die)
    job_id = bench.job(trials=16)
    bench.lose_worker(job_id)
    (bench.work(job_id) / "tuned-autotvm.json").write_bytes(b"")
    made = len(bench.script.asked("compile"))
    bench.finish(job_id)
    assert len(bench.script.asked("compile")) > made


def test_another_placement_starts_anew(bench: Bench, around: Callable[..., None], ran: Counter[Stage]) -> None:
    around(Stage.COMPILE, before=_die)
    job_id = bench.job(trials=16)
    bench.lose_worker(job_id)
    toolchain = {**scripted.HELLO["toolchain"], "tvm": "0.20.0"}  # type: ignore[dict-item]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scripted.HELLO, "toolchain", toolchain)
        bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert ran[Stage.PLAN] == 2
    assert "0.20.0" in str(bench.result(job_id, PlanResult).placement)
    assert {record.key.toolchain for record in bench.records(job_id)} == {"relay/tvm-0.20.0/llvm-22"}
    assert bench.get(job_id).trials_done == len(bench.records(job_id)) == 16
    assert len(bench.script.measured) == 32


@pytest.mark.parametrize("stage", list(Stage))
def test_a_job_is_canceled_at_any_stage(bench: Bench, around: Callable[..., None], stage: Stage) -> None:
    def cancel(context: JobContext) -> None:
        bench.cancel(context.job.id)
        until(context.heartbeat.stop_wanted)

    around(stage, before=cancel)
    job_id = bench.run(trials=16)
    job = bench.get(job_id)
    # What is all but published when the wish arrives may as well be kept.
    expected = {JobState.CANCELED, JobState.SUCCEEDED} if stage is Stage.PUBLISH else {JobState.CANCELED}
    assert job.state in expected
    assert job.failure is None
    assert not bench.work(job_id).exists()


def test_a_cancel_between_trials_stops_the_round(bench: Bench) -> None:
    def cancel(count: int) -> None:
        if count == 3:
            bench.cancel(job_id)

    bench.script.on_trial = cancel
    bench.script.seconds_per_trial = 0.02
    job_id = bench.job(trials=400)
    bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.CANCELED
    assert 3 <= len(bench.records(job_id)) < 30


def test_a_canceled_job_whose_worker_died_is_canceled(bench: Bench, around: Callable[..., None]) -> None:
    around(Stage.TUNE, before=_die)
    job_id = bench.job(trials=16)
    with pytest.raises(Killed):
        bench.runtime().run_job(job_id)
    bench.cancel(job_id)
    bench.bury(job_id)
    bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.CANCELED


def test_a_shutdown_gives_the_job_back(bench: Bench) -> None:
    runtime = bench.runtime()

    def stop(count: int) -> None:
        if count == 3:
            runtime.shutdown.set()

    bench.script.on_trial = stop
    job_id = bench.job(trials=24)
    runtime.run_job(job_id)
    job = bench.get(job_id)
    assert (job.state, job.attempts, job.lease) == (JobState.QUEUED, 0, None)
    assert bench.work(job_id).exists()
    bench.script.on_trial = lambda _: None
    bench.finish(job_id)
    assert len(bench.script.measured) == len(set(bench.script.measured)) == 24


def test_an_engine_that_a_shutdown_ends_says_nothing_about_a_build(bench: Bench) -> None:
    runtime = bench.runtime()

    def stop(method: str, params: dict[str, Any]) -> None:
        if method == "run" and "/tuned" in params.get("bundle", ""):
            runtime.shutdown.set()
            raise errors.EngineCrashed("relay engine: it was killed by SIGTERM")

    bench.script.refuse = stop
    job_id = bench.job(trials=16)
    runtime.run_job(job_id)
    job = bench.get(job_id)
    assert (job.state, job.stage, job.failure) == (JobState.QUEUED, Stage.VERIFY, None)


def test_a_worker_that_is_ending_takes_nothing(bench: Bench) -> None:
    runtime = bench.runtime()
    runtime.shutdown.set()
    job_id = bench.job()
    runtime.run_job(job_id)
    assert bench.get(job_id).attempts == 0


def _steal(bench: Bench, context: JobContext) -> None:
    bench.bury(context.job.id)
    bench.take(context.job.id, "thief")


def test_whoever_lost_the_lease_leaves_the_files_alone(bench: Bench, around: Callable[..., None]) -> None:
    def steal(context: JobContext) -> None:
        _steal(bench, context)
        raise errors.InvalidRequest("something is wrong as well")

    around(Stage.COMPILE, before=steal)
    job_id = bench.run(trials=16)
    assert bench.get(job_id).state is JobState.RUNNING
    assert (bench.work(job_id) / "prepared.onnx").exists()


@pytest.mark.parametrize("stage", list(Stage))
def test_whoever_lost_the_lease_writes_nothing(bench: Bench, around: Callable[..., None], stage: Stage) -> None:
    seen: list[int] = []

    def steal(context: JobContext) -> None:
        _steal(bench, context)
        seen.append(len(bench.events(context.job.id)))

    around(stage, after=steal)
    job_id = bench.run(trials=16)
    job = bench.get(job_id)
    assert job.state is JobState.RUNNING
    assert job.lease is not None
    assert job.lease.worker_id == "thief"
    assert [len(bench.events(job_id))] == seen
    assert bench.work(job_id).exists()


def test_a_job_that_kills_every_worker_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def extract(_: JobContext) -> StageResult:
        raise Killed

    monkeypatch.setattr(running, "STEPS", ((Stage.IMPORT, extract),))
    job_id = bench.job()
    for _ in range(3):
        with pytest.raises(Killed):
            bench.runtime(max_attempts=3).run_job(job_id)
        bench.bury(job_id)
    bench.runtime(max_attempts=3).run_job(job_id)
    assert bench.failure(job_id).code == "attempts_exhausted"
