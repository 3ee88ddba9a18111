"""What becomes of a job, with scripted engines: its result, its failures and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import Variant
from domain.jobs import EventKind, JobState, Stage, Tuner
from domain.records import Record
from storage import convergence, records
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import BOTH, ScriptedEngine, refusing
from tuner.results import bundle
from worker.pipeline.search import progress


def test_a_job_ends_with_a_published_bundle(bench: Bench) -> None:
    job_id = bench.run(trials=32)
    job = bench.get(job_id)
    assert (job.state, job.failure, job.trials_done, job.trials_planned) == (JobState.SUCCEEDED, None, 32, 32)
    artifact = bench.artifact(job_id)
    assert artifact.id == job.artifact_id
    assert artifact.report.published is Variant.TUNED
    assert artifact.report.speedup_over_untuned == pytest.approx(2.0)
    manifest = bundle.open_bundle(bench.blobs.path(artifact.digest), bench.home / "opened")
    assert (manifest.variant, manifest.target, manifest.model_name) == ("tuned", "llvm -mcpu=znver3", "m.onnx")
    winners = json.loads((bench.home / "opened" / "records.json").read_text())["records"]
    fastest = {
        record.key.workload_key: record for record in sorted(bench.records(job_id), key=lambda r: -r.latencies[0])
    }
    assert sorted(winners) == sorted(record.schedule for record in fastest.values())
    assert not bench.work(job_id).exists()


def test_events_tell_the_whole_story(bench: Bench) -> None:
    job_id = bench.run(trials=16)
    stages = [(event.data["stage"], event.data["status"]) for event in bench.events(job_id, EventKind.STAGE)]
    assert stages == [(stage.value, status) for stage in Stage for status in ("started", "finished")]
    done = [event.data["trials_done"] for event in bench.events(job_id, EventKind.PROGRESS)]
    assert done == sorted(done)
    assert done[-1] == 16
    states = [event.data["state"] for event in bench.events(job_id, EventKind.STATE)]
    assert states == ["queued", "running", "succeeded"]
    assert bench.events(job_id)[-1].kind is EventKind.STATE


def test_progress_is_reported_twice_a_second_and_nothing_is_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    job_id = bench.job(trials=16)
    add = records.add

    def added(session: Session, found: Sequence[Record]) -> int:
        now[0] += 0.125
        return add(session, found)

    monkeypatch.setattr(records, "add", added)
    bench.runtime().run_job(job_id)
    told = [event.data for event in bench.events(job_id, EventKind.PROGRESS)]
    # The first trial, every fourth after it, and what is left at the end of the search.
    assert [data["trials_done"] for data in told] == [1, 5, 9, 13, 16]
    assert {data["trials_planned"] for data in told} == {16}
    tasks = bench.tasks(job_id)
    with bench.database.reading() as session:
        estimator = convergence.begin(session, bench.get(job_id))
        curve = estimator.follow(convergence.trials_of_job(session, job_id))
    standing = {task["position"]: task for data in told for task in data["tasks"]}
    for task in tasks:
        last = standing[task.extracted.position]
        assert (last["trials_done"], last["best_latency"]) == (task.trials_done, task.best_latency)
        assert last["best_gflops"] == pytest.approx(1e6 / last["best_latency"] / 1e9)
        assert last["best_gflops"] == curve.tasks[task.extracted.position][-1][2], "the plot goes on from there"
    estimates = {trials: estimate for trials, _, estimate in curve.estimate}
    assert told[-1]["estimate"] == estimates[16] == estimator.estimate


def test_nothing_wrong_is_published(bench: Bench) -> None:
    bench.script.wrong = frozenset({"tuned", "untuned"})
    job_id = bench.run()
    job, failure = bench.get(job_id), bench.failure(job_id)
    assert failure.code == "verification_failed"
    # Whoever imports a model wrongly is told before anything is spent on tuning it.
    assert set(failure.details["verifications"]) == {"untuned relay"}
    assert (job.stage, bench.script.measured) == (Stage.BASELINE, [])
    assert job.artifact_id is None
    assert not bench.work(job_id).exists()


@pytest.mark.parametrize("tuner", [Tuner.AUTOTVM, Tuner.AUTO])
def test_a_model_without_any_finite_number_proves_nothing(
    bench: Bench, tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = ScriptedEngine._compare

    def without_numbers(engine: ScriptedEngine, params: dict[str, Any]) -> dict[str, Any]:
        return {"outputs": [{**each, "elements": 8, "finite": 0} for each in compare(engine, params)["outputs"]]}

    monkeypatch.setattr(ScriptedEngine, "_compare", without_numbers)
    bench.script.hellos = BOTH
    job_id = bench.run(tuner=tuner)
    failure = bench.failure(job_id)
    assert (bench.get(job_id).stage, failure.code) == (Stage.BASELINE, "verification_failed")
    assert failure.message.startswith("ONNX Runtime computes no finite number from 3 seeded inputs")
    assert "docs/explanation/verification.md" in (failure.hint or "")
    assert failure.details["outputs"] == ["y"]
    assert bench.script.measured == []


def test_an_output_that_is_empty_on_all_inputs_makes_the_artifact_not_verified(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = ScriptedEngine._compare

    def with_an_empty_output(engine: ScriptedEngine, params: dict[str, Any]) -> dict[str, Any]:
        [output] = compare(engine, params)["outputs"]
        return {"outputs": [output, {**output, "output": "boxes", "elements": 0, "finite": 0}]}

    compared = bench.artifact(bench.run())
    monkeypatch.setattr(ScriptedEngine, "_compare", with_an_empty_output)
    found = bench.artifact(bench.run())
    assert (compared.verified, found.verified) == (True, False)
    assert "Output boxes was not compared: ONNX Runtime returns no element there." in found.report.summary


def test_a_build_that_crashes_when_run_is_not_published(bench: Bench) -> None:
    error = errors.EngineCrashed("relay engine: it was killed by SIGSEGV")
    bench.script.refuse = refusing("run", error, bundle="/tuned")
    job_id = bench.run()
    artifact = bench.artifact(job_id)
    assert artifact.report.published is Variant.UNTUNED
    assert any("the tuned build does not run" in note for note in bench.notes(job_id))


@pytest.mark.parametrize(
    ("method", "engine_code", "code"),
    [
        ("check", "unsupported_operators", "unsupported_operators"),
        ("check", "engine_internal_error", "engine_request_failed"),
        ("extract", "compile_failed", "engine_request_failed"),
    ],
)
def test_what_an_engine_refuses_is_the_failure(bench: Bench, method: str, engine_code: str, code: str) -> None:
    error = errors.EngineRequestFailed(engine_code, "no", hint="try", details={"operators": {"Det": 2}})
    bench.script.refuse = refusing(method, error)
    job_id = bench.run()
    failure = bench.failure(job_id)
    assert (failure.code, failure.message, failure.hint) == (code, "no", "try")
    assert failure.details["operators"] == {"Det": 2}


@pytest.mark.parametrize(("target", "near"), [("llvm -mcpu=znver", ["znver3"]), ("llvm -num-cores=3", None)])
def test_a_target_that_the_engine_does_not_know(bench: Bench, target: str, near: list[str] | None) -> None:
    job_id = bench.run(target=target)
    failure = bench.failure(job_id)
    assert (failure.code, bench.get(job_id).stage) == ("unknown_target", Stage.IMPORT)
    assert failure.details.get("near_matches") == near


def test_placement_is_what_was_resolved(bench: Bench) -> None:
    job_id = bench.run(target="llvm -mcpu=skylake-avx512", threads=1, trials=8)
    placement = bench.get(job_id).placement
    assert placement is not None
    assert placement.target.identity == "llvm -mcpu=skylake-avx512 -num-cores=1"
    assert placement.device.threads == 1
    assert placement.toolchain.identity == "relay/tvm-0.19.0/llvm-22"


def test_an_unexpected_error_is_told_without_its_insides(bench: Bench) -> None:
    bench.script.refuse = refusing("extract", KeyError("secret"))
    job_id = bench.run()
    failure = bench.failure(job_id)
    assert failure.code == "internal_error"
    assert "secret" not in failure.message


def test_an_engine_lost_once_is_forgiven(bench: Bench) -> None:
    crashes = iter([True])

    def refuse(asked: str, _: dict[str, Any]) -> None:
        if asked == "extract" and next(crashes, False):
            raise errors.EngineCrashed("relay engine: it was killed by SIGKILL")

    bench.script.refuse = refuse
    job_id = bench.succeed(trials=8)
    assert any("SIGKILL" in note for note in bench.notes(job_id))


def test_a_cpu_that_cannot_run_the_target(bench: Bench) -> None:
    def refuse(asked: str, params: dict[str, Any]) -> None:
        if asked == "run" and "bundle" in params:
            raise errors.EngineCrashed("relay engine: it was killed by SIGILL", details={"signal": "SIGILL"})

    bench.script.refuse = refuse
    job_id = bench.run(target="llvm -mcpu=skylake-avx512")
    failure = bench.failure(job_id)
    assert failure.code == "unsupported_target"
    assert failure.hint is not None
    assert "'rpc'" in failure.hint
    assert "'none'" in failure.hint
    assert "cannot run code for 'llvm -mcpu=skylake-avx512'" in failure.message
