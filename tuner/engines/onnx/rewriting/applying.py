"""Application of all rewriting passes to a model, checking after each that its results are unchanged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from tuner.engines.onnx import arrays, models, sessions
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.rewriting import (
    denormals,
    graphs,
    groups,
    lines,
    normalized,
    resized,
    rows,
    summed,
    taps,
    transposed,
    volumes,
)
from tuner.engines.onnx.rewriting.aligned import padding
from tuner.engines.onnx.rewriting.plain import (
    assigned,
    attention,
    differences,
    einsum,
    explicit,
    fused,
    loops,
    patches,
    quantized,
    recurrent,
    reductions,
    resizing,
    selected,
    spectra,
    upgrading,
)
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import weights

Pass = Callable[[onnx.ModelProto, int], int]
"""Edits a model in place and returns the number of places changed.

The second argument is the number of 32-bit lanes of the target's vectors. The model has static inputs, all its
constants are initializers, and it has no ``value_info``; ``graphs.shapes`` returns the shapes. Inputs and outputs keep
their names, types and shapes. A pass must leave subgraphs and unknown operators unchanged.
"""

PASSES: dict[str, Pass] = {
    "summed": summed.apply,
    "taps": taps.apply,
    "volumes": volumes.apply,
    "normalized": normalized.apply,
    "lines": lines.apply,
    "groups": groups.apply,
    "transposed": transposed.apply,
    "resized": resized.apply,
    "rows": rows.apply,
    "aligned": padding.apply,
    "denormals": denormals.apply,
}
"""By their names in the engine's answer, in order of application; constants that others made are rounded last."""

PLAIN: dict[str, Pass] = {
    "upgraded": lambda model, _: upgrading.apply(model),
    "loops": lambda model, _: loops.apply(model),
    "explicit": lambda model, _: explicit.apply(model),
    "assigned": lambda model, _: assigned.apply(model),
    "einsum": lambda model, _: einsum.apply(model),
    "selected": lambda model, _: selected.apply(model),
    "attention": lambda model, _: attention.apply(model),
    "fused": lambda model, _: fused.apply(model),
    "patches": lambda model, _: patches.apply(model),
    "resized": lambda model, _: resizing.apply(model),
    "quantized": lambda model, _: quantized.apply(model),
    "reductions": lambda model, _: reductions.apply(model),
    "spectra": lambda model, _: spectra.apply(model),
    "recurrent": lambda model, _: recurrent.apply(model),
    "differences": lambda model, _: differences.apply(model),
}
"""Passes of the preparation of a model: they replace operators that few compilers support, for every target."""
_REPLACED = frozenset().union(
    *(each.OPERATORS for each in (assigned, attention, einsum, fused, loops, patches)),
    *(each.OPERATORS for each in (quantized, recurrent, resizing, selected, spectra)),
)

_log = logging.getLogger(__name__)
ROUNDING = 1e-4
"""Difference, relative to an output's largest magnitude, that another order of float32 sums may cause."""
NEAR_NOTHING = 1e-6
"""Negligible absolute difference: a sigmoid that is almost 0 everywhere amplifies the rounding errors of its input."""


def has_plain_form(node: onnx.NodeProto) -> bool:
    """Return whether ``PLAIN`` may replace a node, so that these passes are worth their checks."""
    return node.op_type in _REPLACED or explicit.applies(node) or reductions.applies(node)


def has_plain_forms(graph: onnx.GraphProto) -> bool:
    """Return whether ``PLAIN`` may change a graph."""
    return any(map(has_plain_form, graph.node)) or differences.applies(graph)


def rewrite(path: str, lanes: int, out_path: str, passes: Mapping[str, Pass] = PASSES) -> Json:
    """Write the rewritten model to ``out_path``; no file is written if no pass changed anything.

    ``undone`` has one sentence for each pass that failed or that changed ONNX Runtime's results on seeded inputs by
    more than ``ROUNDING``. Raises EngineFailure ``invalid_model`` for an invalid file.
    """
    done = apply(models.read(path), lanes, passes)
    if done.applied:
        weights.write(done.model, Path(out_path))
    return {"applied": done.applied, "undone": done.undone}


@dataclass(frozen=True, kw_only=True)
class Applied:
    model: onnx.ModelProto
    applied: dict[str, int]
    """Number of changed places by pass."""
    undone: dict[str, str]


def apply(model: onnx.ModelProto, lanes: int, passes: Mapping[str, Pass]) -> Applied:
    """Apply passes to a model, which is changed, and undo each that ``rewrite`` describes."""
    original = _Original(graphs.copy(model))
    graphs.lift_constants(model)
    del model.graph.value_info[:]
    applied: dict[str, int] = {}
    undone: dict[str, str] = {}
    for name, edit in passes.items():
        candidate = graphs.copy(model)
        try:
            count = edit(candidate, lanes)
            if count:
                graphs.name_nodes(candidate.graph)
                original.require_same(candidate)
        except Exception as error:  # noqa: BLE001 - a rewriting never breaks a model, whatever goes wrong in it
            _log.warning("rewrite %s was reverted", name, exc_info=True)
            undone[name] = f"{type(error).__name__}: {error}"[:500]
            continue
        if count:
            model, applied[name] = candidate, count
    return Applied(model=model, applied=applied, undone=undone)


class _Original:
    """Results of the original model on seeded inputs, computed on first use."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model

    @cached_property
    def _inputs(self) -> list[arrays.Arrays]:
        specs = [models.spec(value) for value in models.fed_inputs(self._model)]
        return arrays.make_for_checks(specs, self._model.graph)

    @cached_property
    def _expected(self) -> list[arrays.Arrays]:
        return self._results(self._model)

    def _results(self, model: onnx.ModelProto) -> list[arrays.Arrays]:
        session = sessions.open_session(model, threads=1)
        return [sessions.run(session, inputs) for inputs in self._inputs]

    def require_same(self, model: onnx.ModelProto) -> None:
        """Raise EngineFailure if a model is invalid, computes different results, or the results prove nothing.

        A quantized model may round some numbers the other way. If it differs and has as many quantizations as the
        original, both are compared without them.
        """
        models.check(model)
        actual = self._results(model)
        try:
            _require_same(self._expected, actual)
        except EngineFailure:
            exact = [_without_rounding(each) for each in (self._model, model)]
            if exact[0] is None or exact[1] is None or _quantizations(self._model) != _quantizations(model):
                raise
            _require_same(*map(self._results, exact))


def _require_same(expected: Sequence[arrays.Arrays], actual: Sequence[arrays.Arrays]) -> None:
    compared = [output for each in zip(expected, actual, strict=True) for output in comparing.compare(*each)]
    for output in compared:
        is_close = output["max_rel"] <= ROUNDING or output["max_abs"] <= NEAR_NOTHING
        if not output["passed"] or (output["dtype"] == "float32" and not is_close):
            raise EngineFailure("wrong_rewriting", f"{output['output']} is off by {output['max_rel']:.3g}")
    # Empty outputs, such as no boxes, are all that some models have for seeded inputs.
    real = [output for output in compared if output["dtype"].startswith("float") and output["elements"]]
    if real and not any(output["finite"] for output in real):
        raise EngineFailure("wrong_rewriting", "no output has a finite number, so nothing was compared")


def _quantizations(model: onnx.ModelProto) -> int:
    return sum(node.op_type == "QuantizeLinear" for node in model.graph.node)


def _without_rounding(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a quantized model (QDQ) without its quantizations; None if it has none, or if its results are bytes."""
    exact = graphs.copy(model)
    rounded: set[str] = set()
    for node in exact.graph.node:
        is_rounded = node.op_type == "QuantizeLinear" or not rounded.isdisjoint(node.input)
        if is_rounded and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            is_rounded = node.op_type == "QuantizeLinear"
            node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output, name=node.name))
        if is_rounded:
            rounded.update(node.output)
    return exact if rounded and rounded.isdisjoint(value.name for value in exact.graph.output) else None
