from __future__ import annotations

from typing import Any

import pytest

from domain.artifacts import OutputError, Variant, Verification
from domain.jobs import AccuracyGate, Budget, JobRequest, Precision, RunnerKind, Tuner
from tuner.search import precisions

F32, BF16, FP16, INT8 = Precision.F32, Precision.BF16, Precision.FP16, Precision.INT8


def request(**values: Any) -> JobRequest:
    return JobRequest(model_digest="0" * 64, budget=Budget(trials=1), **values)


def found(**values: Any) -> Verification:
    error: dict[str, Any] = {
        "output": "y", "dtype": "float32", "max_abs": 0.05, "max_rel": 0.01, "atol": 1e-3, "rtol": 0.1, "passed": True,
    }  # fmt: skip
    output = OutputError(**{**error, **values})
    return Verification(variant=Variant.TUNED, seeds=(0,), outputs=(output,), precision="int8")


@pytest.mark.parametrize("precision", [F32, BF16, FP16, INT8])
def test_a_named_precision_is_considered_alone(precision: Precision) -> None:
    offers = {"relax": {"precisions": ["f32", "bf16", "int8"]}}
    assert precisions.considered(request(precision=precision), offers) == (precision,)
    assert precisions.first(request(precision=precision)) is precision


def test_tuners_have_schedules_for_some_precisions() -> None:
    assert INT8.tuners == BF16.tuners == (Tuner.METASCHEDULE,)
    assert F32.tuners == Tuner.AUTO.considered
    assert request(precision=BF16).tuners == (Tuner.METASCHEDULE,)
    assert request(precision=FP16, tuner=Tuner.ANSOR).tuners == (Tuner.ANSOR,)
    # Of a job that is older than the restriction.
    assert request(precision=BF16, tuner=Tuner.AUTOTVM).tuners == (Tuner.AUTOTVM,)


def test_f32_is_the_default() -> None:
    assert precisions.considered(request(), {"relax": {"precisions": ["f32", "bf16"]}}) == (F32,)


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ({}, (F32,)),
        ({"relay": {}}, (F32,)),
        ({"relay": {"precisions": ["f32"]}, "relax": {"precisions": ["f32", "int8", "bf16"]}}, (F32, BF16, INT8)),
        ({"relay": {"precisions": ["fp16"]}}, (F32, FP16)),
        ({"relay": {"precisions": ["f64"]}}, (F32,)),
    ],
)
def test_auto_considers_what_engines_offer(answers: dict[str, Any], wanted: tuple[Precision, ...]) -> None:
    assert precisions.considered(request(precision=Precision.AUTO), answers) == wanted
    assert precisions.first(request(precision=Precision.AUTO)) is F32


def test_auto_stays_with_f32_where_nothing_can_be_proven() -> None:
    unproven = request(precision=Precision.AUTO, runner=RunnerKind.NONE)
    assert precisions.considered(unproven, {"relax": {"precisions": ["bf16"]}}) == (F32,)


def test_a_gate_leaves_to_the_precision_what_was_not_asked_for() -> None:
    assert precisions.gate_of(request(precision=INT8), INT8) == AccuracyGate(top1=0.99)
    asked = request(precision=Precision.AUTO, accuracy=AccuracyGate(max_rel=0.01, top1=0.5))
    assert precisions.gate_of(asked, BF16) == AccuracyGate(max_rel=0.01, top1=0.5)
    assert precisions.gate_of(asked, F32) == AccuracyGate()


def test_what_is_close_enough_passes() -> None:
    assert not precisions.objections(found(top1=1.0), AccuracyGate(top1=0.99))


@pytest.mark.parametrize(
    ("error", "gate", "said"),
    [
        ({"max_rel": 0.2, "passed": False}, AccuracyGate(), "off by 20 % of its largest magnitude; the limit is 10 %"),
        ({}, AccuracyGate(max_rel=0.005), "off by 1 % of its largest magnitude; the limit is 0.5 %"),
        ({"top1": 0.9375}, AccuracyGate(top1=0.99), "keeps its index in 93.8% of rows; 99.0% are required"),
        (
            {"fault": "wrong shape: 2 instead of 3", "passed": False, "max_rel": 1e308},
            AccuracyGate(),
            "output y: wrong shape: 2 instead of 3",
        ),
        ({"not_finite": 3, "passed": False, "max_rel": 1e308}, AccuracyGate(), "3 elements of output y are not finite"),
    ],
)
def test_what_is_not_is_left_out_with_its_numbers(error: dict[str, Any], gate: AccuracyGate, said: str) -> None:
    [objection] = precisions.objections(found(**error), gate)
    assert said in objection
    assert precisions.rejection(found(**error), gate, INT8) == f"The int8 build was rejected: {objection}."


def test_outputs_without_classes_need_no_agreement() -> None:
    assert not precisions.objections(found(top1=None), AccuracyGate(top1=1.0))


def test_what_the_comparison_passed_within_the_gate_passes() -> None:
    assert not precisions.objections(found(max_abs=1e-4, max_rel=0.5), AccuracyGate(max_rel=0.1))
    assert not precisions.objections(found(max_abs=1e-4, max_rel=0.5), AccuracyGate())


def test_what_did_not_run_does_not_pass() -> None:
    nothing = Verification(variant=Variant.TUNED, seeds=(0,), outputs=(), precision="int8")
    assert precisions.rejection(nothing, AccuracyGate(), INT8) == "The int8 build did not run."


def test_the_error_has_the_numbers() -> None:
    gate = AccuracyGate(top1=0.99)
    error = precisions.not_met({INT8: (found(top1=0.5), gate)})
    assert (error.code, bool(error.hint)) == ("accuracy_not_met", True)
    [numbers] = error.details["precisions"]["int8"]
    assert (numbers["output"], numbers["top1"], numbers["max_rel"], numbers["rtol"]) == ("y", 0.5, 0.01, 0.1)
    assert "50.0%" in error.message
