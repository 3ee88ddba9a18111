"""Normalization of channels, alone or in groups, in any layout.

For groups, exporters reshape a tensor to one row for each group of channels, normalize the rows, and reshape the
result. Where the channels of a pixel are neighbours, as in relax's layout, both reshapes move every number, and TVM's
importers multiply by scales in the model's layout. Means of channels do not depend on the layout. Given those of the
groups, normalizing is a multiplication and an addition, which are fused with what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Emitter, Replacement, Replacements, replace

_FEWEST_AXES = 3
"""Batch, channels and at least one more."""


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """Groups of channels of a tensor."""

    shape: tuple[int, ...]
    count: int

    @property
    def size(self) -> int:
        return self.shape[1] // self.count

    @property
    def members(self) -> Any:
        """Array [groups, channels], float32: 1 where the channel is in the group, else 0.

        A compiler computes a product with it once. It would repeat an ``Expand`` for each element that reads it.
        """
        return np.repeat(np.eye(self.count, dtype=np.float32), self.size, axis=1)

    @property
    def ones(self) -> list[int]:
        """Shape of a number for each group, which broadcasts to that of ``_mean``."""
        if self.count > 1 and self.size > 1:
            return [1, self.count]
        return [1, self.count, *[1] * (len(self.shape) - 2)]


class _Normalizations(Replacements):
    def __init__(self, emitter: Emitter, producers: Mapping[str, onnx.NodeProto]) -> None:
        super().__init__(emitter)
        self._producers = producers

    def find(self, node: onnx.NodeProto) -> Replacement | None:
        if node.op_type == "InstanceNormalization":
            return None if self._reshaped(node) else partial(self._normalize, node, node.input[0])
        norm = self._producers.get(node.input[0]) if node.op_type == "Reshape" else None
        source = self._reshaped(norm) if norm and norm.op_type == "InstanceNormalization" else None
        return partial(self._normalize, norm, source) if source else None

    def _reshaped(self, norm: onnx.NodeProto) -> str | None:
        """Return the tensor of which a normalization's input is another shape."""
        before = self._producers.get(norm.input[0])
        return before.input[0] if before and before.op_type == "Reshape" else None

    def _normalize(self, norm: onnx.NodeProto, source: str, node: onnx.NodeProto) -> None:
        e = self._e
        shape, rows = e.shapes.get(source), e.shapes.get(norm.input[0])
        scale, bias = (e.value(name) for name in norm.input[1:])
        if shape is None or rows is None or scale is None or bias is None or e.shapes.get(node.output[0]) != shape:
            raise Declined
        if scale.dtype != np.float32:
            raise Declined
        batch, groups = rows[:2]
        if len(shape) < _FEWEST_AXES or shape[0] != batch or shape[1] % groups:
            raise Declined
        of = _Groups(shape=shape, count=groups)
        mean = self._mean(source, of)
        off = e.emit("Sub", [source, self._spread(mean, of)])
        variance = self._mean(e.emit("Mul", [off, off]), of)
        epsilon = e.constant(graphs.attribute(norm, "epsilon", 1e-5))
        deviation = e.emit("Sqrt", [e.emit("Add", [variance, epsilon])])
        factor = e.emit("Div", [e.constant(scale.reshape(of.ones)), deviation])
        term = e.emit("Sub", [e.constant(bias.reshape(of.ones)), e.emit("Mul", [mean, factor])])
        scaled = e.emit("Mul", [source, self._spread(factor, of)])
        e.emit("Add", [scaled, self._spread(term, of)], node.output[0])

    def _mean(self, name: str, of: _Groups) -> str:
        """Emit the mean of each group: [batch, groups], and a size of 1 for each other axis unless groups have several
        channels."""
        if of.count == 1:
            return self._e.reduced("ReduceMean", name, range(1, len(of.shape)))
        means = self._e.reduced("ReduceMean", name, range(2, len(of.shape)))
        if of.size == 1:
            return means
        return self._e.emit("MatMul", [self._e.reshape(means, of.shape[:2]), self._e.constant(of.members.T / of.size)])

    def _spread(self, name: str, of: _Groups) -> str:
        """Emit what ``_mean`` has for each group, for each channel."""
        if of.count == 1 or of.size == 1:
            return name
        channels = self._e.emit("MatMul", [name, self._e.constant(of.members)])
        return self._e.reshape(channels, [*of.shape[:2], *[1] * (len(of.shape) - 2)])


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Replace normalizations and return their number."""
    producers = {name: node for node in model.graph.node for name in node.output}
    return replace(model, lambda emitter: _Normalizations(emitter, producers))
