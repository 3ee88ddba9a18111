"""Stage ``import``: fix shapes, fold constants, check which engines import the result, and derive more models.

The rewritten model is for tuned builds: the same function, of operators that compilers handle well. The quantized model
is for jobs that consider int8, the narrowed one for those that consider bf16; their scales and the layers that stay in
float32 come from calibration inputs that verification does not use.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from domain import errors
from domain.jobs import CALIBRATED, Precision, Stage
from domain.stage_results import ImportFailure, ImportResult
from tuner.host.inspection import Prepared, Rewritten
from tuner.results import verification
from tuner.search import precisions
from worker.engines import ONNX
from worker.pipeline import beside, data, recovery, stage_memory
from worker.pipeline.ahead import AHEAD
from worker.pipeline.context import CHECK_SECONDS, JobContext

_Check = Future[dict[str, Any]]
"""Of the prepared model by an engine."""
_METHODS = {Precision.INT8: "quantize", Precision.BF16: "narrow"}
"""Methods of the onnx engine that derive the precisions' models."""
_QUANTIZE_SECONDS = 1800.0
_SENSITIVITY_SHARE, _SENSITIVITY_SECONDS = 0.25, (30.0, 240.0)
"""Share of the job's seconds, and bounds, of the time in which layers are ordered by what int8 does to the outputs."""
_MOST_NAMED = 5
"""Layers that a sentence of the report names."""
_CALIBRATION = "calibration"
"""Folder of the calibration inputs."""
_REWRITE_SECONDS = 900.0
_REWRITING_TEXTS = {
    "summed": ("sum", "of convolutions computed as one", "of convolutions computed as one each"),
    "taps": (
        "convolution",
        "computed without weights that only multiply padding",
        "computed without weights that only multiply padding",
    ),
    "volumes": ("three-dimensional convolution", "computed plane by plane", "computed plane by plane"),
    "normalized": (
        "normalization",
        "computed in the layout of convolutions",
        "computed in the layout of convolutions",
    ),
    "lines": ("one-dimensional convolution", "moved to the innermost axis", "moved to the innermost axis"),
    "groups": ("grouped convolution", "padded to whole vectors", "padded to whole vectors"),
    "transposed": ("transposed convolution", "replaced by a plain one", "replaced by plain ones"),
    "resized": ("resize operator", "replaced by products", "replaced by products"),
    "rows": ("matrix product", "computed with a padded sequence", "computed with padded sequences"),
    "aligned": ("layer", "padded to whole vectors", "padded to whole vectors"),
    "denormals": ("constant", "with its denormal numbers rounded to zero", "with denormal numbers rounded to zero"),
}
"""For each rewriting: the operator, and the text for one and for several of them."""


@dataclass(frozen=True, kw_only=True)
class _FailedImport:
    engine: str
    error: errors.TunesmithError

    @property
    def facts(self) -> ImportFailure:
        operators = self.error.details.get("operators", {})
        return ImportFailure(code=self.error.code, message=self.error.message[:1000], operators=operators)


def run(context: JobContext) -> ImportResult:
    """Raises InvalidModel, UnsupportedOperators, ShapeRequired, ShapeMismatch, EngineError."""
    final = context.prepared
    partial = context.folder / f"partial-{final.name}"
    with context.blobs.local(context.model.digest) as original:
        prepared = context.engines.prepare(original, context.request.input_shapes, partial)
    partial.replace(final)
    context.heartbeat.check()
    context.engines.memory_bytes = stage_memory.limit(Stage.IMPORT, prepared.memory_bytes, context.target)
    params = {"model": str(context.prepared), "target": context.target.text, "threads": context.threads}
    calls = {name: functools.partial(_check, context, name, params) for name in context.toolchains}
    with context.limit.alternative(last=len(calls) == 1), beside.started(calls) as checks:
        rewritten = _rewrite(context, checks)
        refusals, answers = _settled(context, checks)
    engines = [name for name in context.toolchains if name in answers]
    considered = precisions.considered(context.request, answers)
    quantized, narrowed = _Derived(), _Derived()
    able = {each: _able(each, engines, answers) for each in considered if each is not Precision.F32}
    if not able.keys().isdisjoint(CALIBRATED):
        calibration = _calibration(context, prepared)
        if Precision.INT8 in able:
            quantized = _quantize(context, calibration, able[Precision.INT8], rewritten)
        if able.get(Precision.BF16):
            narrowed = _narrow(context, calibration, able[Precision.BF16], rewritten)
    return ImportResult(
        files=(final.name, *rewritten.files, *quantized.files, *narrowed.files),
        precisions=tuple(each for each in considered if each is not Precision.INT8 or quantized.files),
        able={str(precision): tuple(names) for precision, names in able.items()},
        inputs=prepared.inputs,
        outputs=prepared.outputs,
        operators=prepared.operators,
        folded=prepared.folded,
        memory_bytes=prepared.memory_bytes,
        engines=tuple(engines),
        refused={refusal.engine: refusal.facts for refusal in refusals},
        rewritings=rewritten.applied,
        rewritten=tuple(rewritten.engines),
        choice=(
            *(f"{refusal.engine} cannot import the model: {_short(refusal.error)}." for refusal in refusals),
            *rewritten.choice,
            *quantized.choice,
            *narrowed.choice,
        ),
    )


def _check(context: JobContext, engine: str, params: dict[str, Any]) -> dict[str, Any]:
    return context.ask(context.compiler(engine), "check", params, timeout=CHECK_SECONDS)


def _lanes(checks: Mapping[str, _Check]) -> int | None:
    """32-bit lanes of the target's vectors, as the last engine that reports them counts them."""
    for check in reversed(list(checks.values())):
        with contextlib.suppress(errors.TunesmithError):
            if lanes := check.result().get("lanes"):
                return int(lanes)
    return None


def _settled(
    context: JobContext, checks: Mapping[str, _Check]
) -> tuple[list[_FailedImport], dict[str, dict[str, Any]]]:
    """Return the engines that do not import the model, and the answers of those that do.

    Raises the preferred engine's error if none imports it.
    """
    refusals: list[_FailedImport] = []
    answers: dict[str, dict[str, Any]] = {}
    for name, check in checks.items():
        try:
            answers[name] = check.result()
        except errors.TunesmithError as error:
            recovery.tolerate(context, error)
            refusals.append(_FailedImport(engine=name, error=error))
    if len(refusals) < len(context.toolchains):
        for refusal in refusals:
            context.note(f"the {refusal.engine} engine cannot import the model: {_short(refusal.error)}")
        return refusals, answers
    late = [refusal for refusal in refusals if isinstance(refusal.error, errors.TimeLimit)]
    first = (late or refusals)[0].error
    first.details["engines"] = {refusal.engine: asdict(refusal.facts) for refusal in refusals}
    raise first


def _short(error: errors.TunesmithError) -> str:
    operators = error.details.get("operators")
    if operators:
        return "it lacks " + ", ".join(f"{name} ({count}×)" for name, count in sorted(operators.items()))
    return error.message[:500].rstrip(".")


@dataclass(frozen=True, kw_only=True)
class _Derived:
    """A model for one precision."""

    files: list[str] = field(default_factory=list)
    """Relative to the work folder."""
    choice: list[str] = field(default_factory=list)
    """Sentences for the report."""


@dataclass(frozen=True, kw_only=True)
class _Calibration:
    """Inputs that choose ranges and layers; none of them judges."""

    inputs: list[str]
    """Paths, one for each run."""
    source: str
    """What they are, for the user."""


def _calibration(context: JobContext, prepared: Prepared) -> _Calibration:
    folder = context.folder / _CALIBRATION
    if given := data.of(context, prepared.inputs, prepared.outputs):
        paths, _ = data.write(context, given, given.split.calibration, folder)
        source = f"{given.use.calibration_rows} rows of the data set"
    else:
        reference, seeds = context.engines.get(ONNX), verification.CALIBRATION_SEEDS
        made = verification.seed_inputs(reference, prepared.inputs, folder, model=context.prepared, seeds=seeds)
        paths, source = list(made.paths), "seeded calibration inputs"
    return _Calibration(inputs=[str(path) for path in paths], source=source)


def _able(precision: Precision, engines: Sequence[str], answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the engines that build a precision."""
    return [name for name in engines if precision in answers[name].get("precisions", ())]


def _quantize(
    context: JobContext, calibration: _Calibration, engines: Sequence[str], rewritten: _Rewriting
) -> _Derived:
    """Quantize the model that ``engines`` build in int8.

    With precision ``auto``, int8 is not considered if the model cannot be quantized. Raises LeaseLost; and, if int8 was
    requested, EngineError and the caller's errors.
    """
    try:
        answer = _derive(context, Precision.INT8, context.quantized, calibration, engines, rewritten)
        params = {"model": str(context.quantized)}
        for name in engines:
            context.ask(context.compiler(name), "check", params, timeout=CHECK_SECONDS)
    except errors.TunesmithError as error:
        recovery.tolerate(context, error)
        if context.request.precision is Precision.INT8:
            raise
        sentence = f"int8 was not considered: {error.message[:300].rstrip('.')}."
        context.note(sentence)
        return _Derived(choice=[sentence])
    counts = ", ".join(f"{count} {name}" for name, count in answer["quantized"].items())
    names = answer["kept"]
    kept = f"; the most sensitive stay in float32: {_named(names)} ({len(names)} in all)" if names else ""
    sentence = (
        f"For int8, the model was quantized with {calibration.source}: {counts}, ranges by {answer['ranges']}{kept}."
    )
    context.note(sentence)
    return _Derived(files=[context.quantized.name], choice=[sentence])


def _narrow(context: JobContext, calibration: _Calibration, engines: Sequence[str], rewritten: _Rewriting) -> _Derived:
    """Mark the layers that stay in float32 in bf16 builds; if that fails, all of them are narrow. Raises LeaseLost."""
    context.narrowed.unlink(missing_ok=True)
    try:
        answer = _derive(context, Precision.BF16, context.narrowed, calibration, engines, rewritten)
    except errors.TunesmithError as error:
        recovery.tolerate(context, error, "cannot find the layers that are sensitive to bf16")
        return _Derived()
    if not answer["kept"]:
        return _Derived()
    count = f"{len(answer['kept'])} of {answer['layers']} products"
    sentence = f"For bf16, {count} stay in float32, chosen by {calibration.source}: {_named(answer['kept'])}."
    context.note(sentence)
    return _Derived(files=[context.narrowed.name], choice=[sentence])


def _named(layers: Sequence[str]) -> str:
    return ", ".join(layers[:_MOST_NAMED]) + (", …" if len(layers) > _MOST_NAMED else "")


def _derive(
    context: JobContext, precision: Precision, path: Path, calibration: _Calibration, engines: Sequence[str],
    rewritten: _Rewriting,
) -> dict[str, Any]:  # fmt: skip
    """Derive the precision's model from the rewritten one if these engines take that, else from the prepared one."""
    partial = path.with_name(f"partial-{path.name}")
    params = {
        "path": str(context.prepared if {*engines}.isdisjoint(rewritten.engines) else context.rewritten),
        "inputs": calibration.inputs,
        "out_path": str(partial),
        "threads": context.threads,
        "seconds": _sensitivity_seconds(context.request.budget.seconds),
        **asdict(precisions.gate_of(context.request, precision)),
    }
    answer = context.ask(context.engines.get(ONNX), _METHODS[precision], params, timeout=_QUANTIZE_SECONDS)
    if partial.exists():
        partial.replace(path)
    return answer


def _sensitivity_seconds(budget: float | None) -> float:
    least, most = _SENSITIVITY_SECONDS
    return most if budget is None else min(most, max(least, budget * _SENSITIVITY_SHARE))


@dataclass(frozen=True, kw_only=True)
class _Rewriting:
    files: list[str] = field(default_factory=list)
    """Relative to the work folder."""
    applied: dict[str, int] = field(default_factory=dict)
    """Number of places that each rewriting changed."""
    engines: list[str] = field(default_factory=list)
    """Engines that import the rewritten model."""
    choice: list[str] = field(default_factory=list)
    """Sentences for the report."""


def _rewrite(context: JobContext, checks: Mapping[str, _Check]) -> _Rewriting:
    """Rewrite for the target's vectors; a model that cannot be rewritten is tuned as it is.

    The last engine's check tells of the vectors; others may still run. Raises LeaseLost.
    """
    context.rewritten.unlink(missing_ok=True)
    lanes = _lanes(checks) if context.rewrites else None
    if lanes is None:
        return _Rewriting()
    partial = context.rewritten.with_name(f"partial-{context.rewritten.name}")
    params = {"path": str(context.prepared), "lanes": lanes, "out_path": str(partial)}
    try:
        answer = context.ask(context.engines.get(ONNX), "rewrite", params, timeout=_REWRITE_SECONDS)
    except errors.TunesmithError as error:
        recovery.tolerate(context, error, "cannot rewrite the model for tuning")
        return _Rewriting()
    made = Rewritten.of(answer, partial)
    for name, reason in made.undone.items():
        context.note(f"the rewrite {name!r} of the model was reverted: {reason[:500]}")
    if made.path is None:
        return _Rewriting()
    made.path.replace(context.rewritten)
    summary = f"rewritten for tuning: {_describe_all(made.applied)}"
    context.note(summary)
    return _Rewriting(
        files=[context.rewritten.name],
        applied=made.applied,
        engines=[name for name, check in checks.items() if _imports(context, name, check)],
        choice=[f"The model was {summary}."],
    )


def _imports(context: JobContext, engine: str, check: _Check) -> bool:
    """Whether the engine imports the rewritten model, and the model.

    While it still checks that, another process of the engine imports the rewritten one, from which stage ``baseline``
    extracts the tasks.
    """
    is_busy = not check.done()
    try:
        asked = replace(context, compilers=AHEAD) if is_busy else context
        _check(asked, engine, {"model": str(context.rewritten)})
    except errors.TunesmithError as error:
        recovery.tolerate(
            context, error, f"the {engine} engine cannot import the rewritten model and tunes the original"
        )
        return False
    return check.exception() is None


def _describe_all(applied: Mapping[str, int]) -> str:
    """Describe the rewritings to the user."""
    return ", ".join(_describe(name, count) for name, count in applied.items())


def _describe(name: str, count: int) -> str:
    noun, once, often = _REWRITING_TEXTS.get(name, ("place", f"by {name}", f"by {name}"))
    return f"{count} {noun} {once}" if count == 1 else f"{count} {noun}s {often}"
