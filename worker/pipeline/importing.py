"""Stage ``import``: static shapes, folded constants, which engines can import what is left, and a rewritten model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from domain import errors
from domain.jobs import Precision
from tuner import precisions
from worker.pipeline import quantizing, rewriting
from worker.pipeline.work import CHECK_SECONDS, Outcome, Work


@dataclass(frozen=True, kw_only=True)
class _Refusal:
    engine: str
    error: errors.TunesmithError

    @property
    def facts(self) -> dict[str, Any]:
        operators = self.error.details.get("operators", {})
        return {"code": self.error.code, "message": self.error.message[:1000], "operators": operators}


def run(work: Work) -> Outcome:
    """Raises InvalidModel, UnsupportedOperators, ShapeRequired, ShapeMismatch, EngineError."""
    final = work.prepared
    partial = work.folder / f"partial-{final.name}"
    with work.blobs.local(work.model.digest) as original:
        prepared = work.engines.prepare(original, work.request.input_shapes, partial)
    partial.replace(final)
    work.keeper.check()
    refusals, answers = _check(work)
    engines = [name for name in work.toolchains if name not in {refusal.engine for refusal in refusals}]
    rewritten = rewriting.rewrite(work, engines, _lanes(answers))
    considered = precisions.considered(work.request, answers)
    inputs = [asdict(spec) for spec in prepared.inputs]
    quantized = quantizing.Outcome()
    if Precision.INT8 in considered:
        able = [name for name in engines if Precision.INT8 in answers[name].get("precisions", ())]
        quantized = quantizing.quantize(work, inputs, able, rewritten=not {*able}.isdisjoint(rewritten.engines))
    return {
        "files": [final.name, *rewritten.files, *quantized.files],
        "precisions": [each for each in considered if each is not Precision.INT8 or quantized.quantized],
        "inputs": inputs,
        "outputs": [asdict(spec) for spec in prepared.outputs],
        "operators": prepared.operators,
        "folded": prepared.folded,
        "engines": engines,
        "refused": {refusal.engine: refusal.facts for refusal in refusals},
        "rewritings": rewritten.applied,
        "rewritten": rewritten.engines,
        "choice": [
            *(f"{refusal.engine} cannot import the model: {_short(refusal.error)}." for refusal in refusals),
            *rewritten.choice,
            *quantized.choice,
        ],
    }


def _lanes(answers: Mapping[str, Mapping[str, Any]]) -> int | None:
    """32-bit lanes of the target's vectors, as the last engine that tells counts them."""
    told = [int(answer["lanes"]) for answer in answers.values() if answer.get("lanes")]
    return told[-1] if told else None


def _check(work: Work) -> tuple[list[_Refusal], dict[str, dict[str, Any]]]:
    """The engines that do not import the model, and the answers of those that do.

    Raises what the preferred one says when none imports it.
    """
    refusals: list[_Refusal] = []
    answers: dict[str, dict[str, Any]] = {}
    params = {"model": str(work.prepared), "target": work.target.text, "threads": work.threads}
    for name in work.toolchains:
        try:
            answers[name] = work.ask(work.compiler(name), "check", params, timeout=CHECK_SECONDS)
        except errors.TunesmithError as error:
            work.keeper.check()
            refusals.append(_Refusal(engine=name, error=error))
    if len(refusals) < len(work.toolchains):
        for refusal in refusals:
            work.note(f"the {refusal.engine} engine cannot import the model: {_short(refusal.error)}")
        return refusals, answers
    first = refusals[0].error
    first.details["engines"] = {refusal.engine: refusal.facts for refusal in refusals}
    raise first


def _short(error: errors.TunesmithError) -> str:
    operators = error.details.get("operators")
    if operators:
        return "it has no " + ", ".join(f"{name} ({count}×)" for name, count in sorted(operators.items()))
    return error.message[:500].rstrip(".")
