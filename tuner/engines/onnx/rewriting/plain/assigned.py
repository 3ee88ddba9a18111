"""Replacement of ``ScatterND`` by ``Concat`` where it assigns to a slice, as exporters write ``x[:, 1:] = y``.

Its indices list every element of the slice: a constant several times as large as the data, read element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacements, replace

OPERATORS = frozenset({"ScatterND"})
_METHODS = {("", "ScatterND"): "_assign"}


class _Assignments(Replacements):
    methods = _METHODS

    def _assign(self, node: onnx.NodeProto) -> None:
        data, indices, updates = node.input
        shape, listed = self._e.shapes.get(data), self._e.value(indices)
        if shape is None or listed is None or graphs.attribute(node, "reduction", b"none") != b"none":
            raise Declined
        begins, ends = _slice(listed, shape)
        inner = [end - begin for begin, end in zip(begins, ends, strict=True)]
        piece = self._e.reshape(updates, [*inner, *shape[len(inner) :]])
        for axis in reversed(range(len(inner))):
            parts = [
                self._part(data, begins, ends, axis, *each) for each in ((0, begins[axis]), (ends[axis], shape[axis]))
            ]
            joined = [*parts[0], piece, *parts[1]]
            piece = self._e.emit("Concat", joined, axis=axis) if len(joined) > 1 else piece
        self._e.emit("Identity", [piece], node.output[0])

    def _part(
        self, data: str, begins: Sequence[int], ends: Sequence[int], axis: int, begin: int, end: int
    ) -> list[str]:
        """Emit the data from ``begin`` to ``end`` of an axis, and within the slice along the axes before it."""
        if begin == end:
            return []
        bounds = [*begins[:axis], begin], [*ends[:axis], end], range(axis + 1)
        return [self._e.emit("Slice", [data, *(self._e.constant(list(each), np.int64) for each in bounds)])]


def _slice(indices: Any, shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return where a slice begins and ends along each axis, given the indices [..., axes] of its elements.

    Raises Declined for indices that are not those of a slice with steps of 1, in order.
    """
    axes = indices.shape[-1]
    places = indices.reshape(-1, axes)
    places = np.where(places < 0, places + np.array(shape[:axes]), places)
    if not places.size:
        raise Declined
    begins, ends = places[0], places[-1] + 1
    sizes = ends - begins
    if (sizes < 1).any() or int(np.prod(sizes)) != len(places):
        raise Declined
    if not np.array_equal(places, np.indices(sizes).reshape(axes, -1).T + begins):
        raise Declined
    return [int(each) for each in begins], [int(each) for each in ends]


def apply(model: onnx.ModelProto) -> int:
    """Replace assignments to slices and return their number."""
    return replace(model, _Assignments)
