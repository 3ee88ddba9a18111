"""Explicit forms of reductions: axes that are listed, and sums in place of norms and of sums of other values.

From operator set 18 on, axes are an input, which Relay reads for some reductions only.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tuner.engines.onnx import models
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import AXES_AS_INPUTS, Declined, Replacement, Replacements, replace

_OF_SUMS = {
    "ReduceL1": ("Abs", ""),
    "ReduceL2": ("Mul", "Sqrt"),
    "ReduceLogSum": ("", "Log"),
    "ReduceSumSquare": ("Mul", ""),
}
"""What precedes the sum, and what follows it; ``Mul`` squares."""
_OTHERS = ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")


def applies(node: onnx.NodeProto) -> bool:
    """Return whether a node may have another form, so that the pass is worth its check."""
    is_listed = len(node.input) > 1 and node.input[1]
    return node.op_type in _OF_SUMS or (node.op_type in _OTHERS and not is_listed)


class _Reductions(Replacements):
    def find(self, node: onnx.NodeProto) -> Replacement | None:
        return self._reduce if node.domain in models.STANDARD_DOMAINS and applies(node) else None

    def _reduce(self, node: onnx.NodeProto) -> None:
        name, axes = [*node.input, ""][:2]
        shape, listed = self._e.shapes.get(name), self._e.value(axes) if axes else ()
        if shape is None or listed is None or (not len(listed) and graphs.attribute(node, "noop_with_empty_axes", 0)):
            raise Declined
        reduced = [int(axis) for axis in listed] or list(range(len(shape)))
        if not reduced:
            raise Declined
        kept = graphs.attribute(node, "keepdims", 1)
        before, after = _OF_SUMS.get(node.op_type, ("", ""))
        operator = "ReduceSum" if node.op_type in _OF_SUMS else node.op_type
        is_truth = self._e.kinds.get(name) == TensorProto.BOOL
        if is_truth:
            name = self._e.cast(name, TensorProto.INT32)
        if before:
            name = self._e.emit(before, [name, name] if before == "Mul" else [name])
        if not after and not is_truth:
            self._e.reduced(operator, name, reduced, node.output[0], keepdims=kept)
            return
        found = self._e.reduced(operator, name, reduced, keepdims=kept)
        if is_truth:
            self._e.cast(found, TensorProto.BOOL, node.output[0])
        else:
            self._e.emit(after, [found], node.output[0])


def apply(model: onnx.ModelProto) -> int:
    """Replace reductions by explicit ones and return their number."""
    return replace(model, _Reductions) if models.opset(model) >= AXES_AS_INPUTS else 0
