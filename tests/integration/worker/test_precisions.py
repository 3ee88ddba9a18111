"""Narrower precisions from a request to what is published, with scripted engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.jobs import AccuracyGate, JobState, Precision, Tuner
from domain.stage_results import BaselineResult
from tests.integration.worker.test_engines import run
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import BOTH, HELLO, RELAX, refusing
from tuner.results import verification
from tuner.search import racing

VNNI = {"relax": ["f32", "bf16", "int8"]}


@pytest.fixture(autouse=True)
def _engines(bench: Bench) -> None:
    bench.script.hellos = {"relax": RELAX, "onnx": HELLO}


def _models(bench: Bench, method: str, precision: str) -> set[str]:
    return {Path(each["model"]).name for each in bench.script.asked(method) if each["precision"] == precision}


def test_int8_builds_are_of_the_quantized_model(bench: Bench) -> None:
    bench.script.precisions = VNNI
    job = run(bench, precision=Precision.INT8)
    assert bench.get(job).state is JobState.SUCCEEDED
    assert _models(bench, "compile", "int8") == _models(bench, "tune", "int8") == {"quantized.onnx"}
    [asked] = bench.script.asked("quantize")
    assert len(asked["inputs"]) == len(verification.CALIBRATION_SEEDS)
    assert {each["precision"] for each in bench.script.asked("compare")} == {"int8"}
    found = bench.artifact(job)
    assert (found.precision, found.report.precision) == ("int8", "int8")
    assert "For int8, the model was quantized with seeded calibration inputs: 1 Conv, ranges by entropy." in (
        found.report.choice
    )


def test_layers_that_stay_in_float32_are_named(bench: Bench) -> None:
    bench.script.precisions = VNNI
    bench.script.kept = tuple(f"conv{number}" for number in range(7))
    job = run(bench, precision=Precision.INT8, accuracy=AccuracyGate(max_rel=0.05), trials=None, seconds=200.0)
    [asked] = bench.script.asked("quantize")
    assert (asked["max_rel"], asked["top1"], asked["seconds"]) == (0.05, 0.99, 50.0)
    said = "the most sensitive stay in float32: conv0, conv1, conv2, conv3, conv4, … (7 in all)."
    assert any(sentence.endswith(said) for sentence in bench.report(job).choice)


def test_bf16_builds_are_of_the_usual_model_where_no_layer_stays_in_float32(bench: Bench) -> None:
    bench.script.precisions = {"relax": ["f32", "bf16"]}
    assert bench.get(run(bench, precision=Precision.BF16)).state is JobState.SUCCEEDED
    assert _models(bench, "compile", "bf16") == {"prepared.onnx"}


def test_bf16_builds_leave_sensitive_layers_in_float32(bench: Bench) -> None:
    bench.script.precisions = {"relax": ["f32", "bf16"]}
    bench.script.kept = ("conv0", "conv1")
    job = run(bench, precision=Precision.BF16, accuracy=AccuracyGate(max_rel=0.05))
    assert _models(bench, "compile", "bf16") == _models(bench, "tune", "bf16") == {"narrowed.onnx"}
    [asked] = bench.script.asked("narrow")
    assert (asked["max_rel"], asked["top1"]) == (0.05, 0.99)
    said = "For bf16, 2 of 9 products stay in float32, chosen by seeded calibration inputs: conv0, conv1."
    assert said in bench.report(job).choice


def test_bf16_is_built_without_knowing_its_sensitive_layers(bench: Bench) -> None:
    error = errors.EngineRequestFailed("unsupported_dtype", "no bfloat16 in this opset")
    bench.script.precisions = {"relax": ["f32", "bf16"]}
    bench.script.refuse = refusing("narrow", error)
    job = run(bench, precision=Precision.BF16)
    assert bench.get(job).state is JobState.SUCCEEDED
    assert _models(bench, "compile", "bf16") == {"prepared.onnx"}


def test_what_is_not_accurate_fails_with_the_numbers(bench: Bench) -> None:
    bench.script.precisions = VNNI
    bench.script.inaccurate = frozenset({"int8"})
    job = run(bench, precision=Precision.INT8, accuracy=AccuracyGate(max_rel=0.05))
    failure = bench.failure(job)
    assert (failure.code, bool(failure.hint)) == ("accuracy_not_met", True)
    assert "off by 40 %" in failure.message
    assert failure.details["precisions"]["int8"][0]["max_rel"] == 0.4
    assert bench.get(job).artifact_id is None


def test_auto_publishes_the_fastest_that_is_accurate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_TRIALS", 16)
    monkeypatch.setattr(racing, "RIVAL_TRIALS", 1)
    # Enough for every build.
    monkeypatch.setattr(racing, "SAVED_SECONDS", -1e6)
    monkeypatch.setattr(racing, "MOST_BUILDS", 9)
    bench.script.precisions = VNNI
    bench.script.inaccurate = frozenset({"int8"})
    job = run(bench, precision=Precision.AUTO, trials=256)
    found = bench.artifact(job)
    assert {each["precision"] for each in bench.script.asked("tune")} == {"f32", "bf16", "int8"}
    assert {each["precision"] for each in bench.script.asked("compare")} > {"f32"}
    notes = [note for note in bench.notes(job) if "int8" in note]
    said = "The int8 build was rejected: output y is off by 40 % of its largest magnitude; the limit is 0.01 %."
    # A network that does not bear int8 is no fault of a build, with records or without.
    assert f"rewritten relax int8: {said}" in notes
    assert f"metaschedule int8: {said} Each operator alone gives correct results" in notes
    assert not any("wrong" in note or "to blame" in note for note in notes)
    assert found.precision in {"f32", "bf16"}
    assert found.precision == found.report.precision


def test_every_engine_that_has_a_precision_builds_in_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "SAVED_SECONDS", -1e6)
    monkeypatch.setattr(racing, "MOST_BUILDS", 9)
    bench.script.hellos = BOTH
    bench.script.precisions = {**VNNI, "relay": ["f32", "fp16"]}
    job = run(bench, precision=Precision.AUTO, trials=64)
    narrow = {each.name for each in bench.report(job).portfolio if each.precision != "f32" and not each.records}
    assert narrow >= {"rewritten relay fp16", "rewritten relax bf16", "rewritten relax int8"}
    assert narrow.isdisjoint({"rewritten relay bf16", "rewritten relax fp16"})


def test_relax_builds_narrow_where_relay_leads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_TRIALS", 16)
    monkeypatch.setattr(racing, "RIVAL_TRIALS", 1)
    bench.script.hellos, bench.script.precisions = BOTH, VNNI
    bench.script.speed = {"relax": 2.0}
    job = run(bench, precision=Precision.AUTO, trials=256)
    assert bench.get(job).state is JobState.SUCCEEDED
    assert bench.result(job, BaselineResult).tuner is Tuner.AUTOTVM
    searched = {(each["tuner"], each["precision"]) for each in bench.script.asked("tune")}
    assert searched >= {("autotvm", "f32"), ("metaschedule", "bf16"), ("metaschedule", "int8")}
    assert not {("autotvm", "bf16"), ("autotvm", "int8")} & searched


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.INT8])
def test_engines_without_a_precision_take_no_part(bench: Bench, precision: Precision) -> None:
    bench.script.hellos, bench.script.precisions = BOTH, VNNI
    job = run(bench, precision=precision)
    assert bench.get(job).state is JobState.SUCCEEDED
    assert "relay" not in bench.script.started
    assert not any("relay" in note for note in bench.notes(job))


@pytest.mark.parametrize("budget", [{"trials": 256}, {"trials": None, "seconds": 60.0}])
def test_auto_searches_narrower_precisions_where_f32_is_covered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any]
) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_TRIALS", 16)
    monkeypatch.setattr(racing, "RIVAL_TRIALS", 1)
    # Enough for all trials of a precision on a slow machine: one that is dropped before is searched by the next job.
    monkeypatch.setattr(racing, "IMPRESSION_SECONDS", 7.0)
    monkeypatch.setattr(racing, "RIVAL_SECONDS", 0.1)
    bench.script.space_size, bench.script.tasks = 8, ("conv",)
    bench.script.precisions = VNNI
    run(bench, **budget)
    paid = len(bench.script.asked("tune"))
    assert paid
    second = run(bench, precision=Precision.AUTO, **budget)
    assert bench.get(second).state is JobState.SUCCEEDED
    assert {each["precision"] for each in bench.script.asked("tune")[paid:]} == {"bf16", "int8"}
    paid = len(bench.script.asked("tune"))
    run(bench, precision=Precision.AUTO, **budget)
    assert len(bench.script.asked("tune")) == paid


def test_f32_is_never_narrowed_unasked(bench: Bench) -> None:
    bench.script.precisions = VNNI
    job = run(bench)
    assert not bench.script.asked("quantize")
    assert {each["precision"] for each in bench.script.asked("compile")} == {"f32"}
    assert bench.artifact(job).precision == "f32"
    assert {tuple(each["seeds"]) for each in bench.script.asked("make_inputs")} == {verification.SEEDS}


@pytest.mark.parametrize("offered", [{}, {"relax": ["f32"]}])
def test_auto_is_f32_where_nothing_else_is_offered(bench: Bench, offered: dict[str, Any]) -> None:
    bench.script.precisions = offered
    job = run(bench, precision=Precision.AUTO)
    assert {each["precision"] for each in bench.script.asked("compile")} == {"f32"}
    assert bench.artifact(job).precision == "f32"


def test_auto_goes_on_without_a_model_that_cannot_be_quantized(bench: Bench) -> None:
    error = errors.EngineRequestFailed("unsupported_dtype", "it has no products")
    bench.script.precisions = {"relax": ["f32", "int8"]}
    bench.script.refuse = refusing("quantize", error)
    job = run(bench, precision=Precision.AUTO)
    found = bench.artifact(job)
    assert (bench.get(job).state, found.precision) == (JobState.SUCCEEDED, "f32")
    assert any("int8 was not considered: it has no products" in sentence for sentence in found.report.choice)


def test_a_model_that_cannot_be_quantized_fails_where_int8_was_asked_for(bench: Bench) -> None:
    error = errors.EngineRequestFailed("unsupported_dtype", "it has no products")
    bench.script.refuse = refusing("quantize", error)
    job = run(bench, precision=Precision.INT8)
    failure = bench.failure(job)
    assert (failure.code, failure.message) == ("invalid_model", "it has no products")


@pytest.mark.parametrize(("precision", "inputs"), [(Precision.F32, [3]), (Precision.AUTO, [16]), (Precision.INT8, [])])
def test_rounding_errors_are_estimated_where_f32_is_built(
    bench: Bench, precision: Precision, inputs: list[int]
) -> None:
    bench.script.precisions = VNNI
    job = run(bench, precision=precision)
    asked = bench.script.asked("run_perturbed")
    assert [len(each["inputs"]) for each in asked] == inputs
    assert bench.get(job).state is JobState.SUCCEEDED
    if inputs:
        assert {each["runs"] for each in bench.script.asked("compare")} == set(asked[0]["folders"])


def test_a_reference_that_cannot_estimate_its_rounding_errors_still_verifies(bench: Bench) -> None:
    bench.script.refuse = refusing("run_perturbed", errors.EngineRequestFailed("run_failed", "out of memory"))
    job = run(bench)
    assert bench.get(job).state is JobState.SUCCEEDED
    assert "the rounding errors of ONNX Runtime could not be estimated: out of memory" in bench.notes(job)
