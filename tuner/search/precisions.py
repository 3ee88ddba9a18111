"""Selection of precisions for a job, and the accuracy gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from domain import errors
from domain.artifacts import MOST_LOST, OutputError, Verification
from domain.jobs import AccuracyGate, JobRequest, Precision, RunnerKind

LEAST_TOP1 = 0.99
"""Default top-1 agreement for reduced precisions."""
_NARROW = (Precision.BF16, Precision.INT8, Precision.FP16)
"""Candidates of ``auto`` besides f32, in this order, if an engine supports them for the target."""


def considered(request: JobRequest, answers: Mapping[str, Mapping[str, Any]]) -> tuple[Precision, ...]:
    """Return the precisions to build, according to the engines' answers to ``check``.

    An explicit precision is the only one. ``auto`` always includes f32, first; others only if the build is run, as they
    could not be verified otherwise.
    """
    if request.precision is not Precision.AUTO:
        return (request.precision,)
    if request.runner is RunnerKind.NONE:
        return (Precision.F32,)
    offered = {str(name) for answer in answers.values() for name in answer.get("precisions", ())}
    return (Precision.F32, *(precision for precision in _NARROW if str(precision) in offered))


def first(request: JobRequest) -> Precision:
    """Return the precision of builds before one is selected: f32, unless another is requested."""
    return Precision.F32 if request.precision is Precision.AUTO else request.precision


def gate_of(request: JobRequest, precision: Precision) -> AccuracyGate:
    """Return the accuracy gate of a precision; a relative error not set is the onnx engine's tolerance.

    f32 has no gate, as it is the baseline of the others, up to the rounding of reordered sums.
    """
    if precision is Precision.F32:
        return AccuracyGate()
    asked = request.accuracy
    return AccuracyGate(max_rel=asked.max_rel, top1=LEAST_TOP1 if asked.top1 is None else asked.top1)


def rejection(found: Verification, gate: AccuracyGate, precision: Precision) -> str:
    """Return a sentence that says why a build did not pass, in numbers."""
    if not found.outputs:
        return f"The {precision} build did not run."
    return f"The {precision} build was rejected: {'; '.join(objections(found, gate)) or 'no output was compared'}."


def objections(found: Verification, gate: AccuracyGate) -> list[str]:
    """Return why results in a narrower precision do not pass the gate, in numbers; empty if they pass."""
    wrong = [reason for error in found.outputs if (reason := _objection(error, gate))]
    if not found.keeps_labels and found.rows and found.rows.labelled:
        wrong.append(f"top-1 on the labels falls by {found.rows.labelled.lost:.1%}; {MOST_LOST:.0%} are allowed")
    return wrong


def not_met(found: Mapping[Precision, tuple[Verification, AccuracyGate]]) -> errors.AccuracyNotMet:
    """Return the error of a job none of whose explicit precisions passes."""
    reasons = [rejection(each, gate, precision) for precision, (each, gate) in found.items()]
    details = {str(precision): [asdict(error) for error in each.outputs] for precision, (each, _) in found.items()}
    return errors.AccuracyNotMet(" ".join(reasons), details={"precisions": details})


def _objection(error: OutputError, gate: AccuracyGate) -> str | None:
    name, allowed = f"output {error.output}", error.rtol if gate.max_rel is None else gate.max_rel
    if error.fault and not error.not_finite:
        return f"{name}: {error.fault}"
    if error.not_finite:
        return f"{error.not_finite} elements of {name} are not finite"
    if gate.top1 is not None and error.top1 is not None and error.top1 < gate.top1:
        agreed, asked = f"{error.top1:.1%}", f"{gate.top1:.1%}"
        return f"the largest element of {name} keeps its index in {agreed} of rows; {asked} are required"
    if error.within is not None and error.least_within is not None and error.within < error.least_within:
        return f"{name} is {error.found}; {error.allowed} are allowed"
    if not error.passed or (gate.max_rel is not None and gate.max_rel < error.rtol and error.max_rel > gate.max_rel):
        return f"{name} is off by {_share(error.max_rel)} of its largest magnitude; the limit is {_share(allowed)}"
    return None


def _share(value: float) -> str:
    return f"{value:.2g}" if value > 10 else f"{value * 100:.2g} %"
