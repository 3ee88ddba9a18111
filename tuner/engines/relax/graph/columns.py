"""Padding of the columns of convolutions and matrix products to whole tiles, for builds that may be rewritten.

A tile's width must divide the number of columns: 38 filters allow vectors of 2 values, 360 filters vectors of 8. 368
filters are 23 vectors of 16, a prime, so that a tile is a single vector wide. This pass adds zero columns to the
weights, or to a computed right operand, and slices the result; the slice is fused with the product, and no other
operator sees the padding.
``onnx.rewriting.aligned`` pads the channels of all operators instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tuner.engines.relax.graph import calls, shuffles
from tuner.engines.relax.machines import Machine

_DTYPE = "float32"
_COPIED = 20.0
"""Time to copy a result of grouped convolutions, or a right operand, in operations at the core's peak."""


def pad(module: Any, machine: Machine, is_filtered: Callable[[Any], bool]) -> Any:
    """Return an ``IRModule`` whose products have more columns where that saves time.

    ``is_filtered`` returns whether a call is a convolution that filtering computes; filtering pads by itself.
    """
    return calls.mutate(module, lambda _: _Padding(machine, is_filtered))


@relax.expr_functor.mutator
class _Padding(relax.PyExprMutator):
    def __init__(self, machine: Machine, is_filtered: Callable[[Any], bool]) -> None:
        super().__init__()
        self._machine, self._is_filtered = machine, is_filtered

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if _is_of_tensors(call):
            return self._with_wide_tensor(call, visited)
        if not _may_be_padded(call) or self._is_filtered(call):
            return visited
        *outer, rows, columns = map(int, call.ty.shape.values)
        groups = int(call.attrs.groups) if calls.operator(call) == calls.CONVOLUTION else 1
        data, kernel = visited.args
        *inner, _ = kernel.value.shape
        own = columns // groups
        copied = _COPIED * own / (2 * math.prod(inner)) if groups > 1 else 0.0
        wide = self._machine.whole(rows, own, padding=copied, allow_remainder=True)
        if wide == own:
            return visited
        parts = kernel.value.numpy().reshape(*inner, groups, own)
        added = np.pad(parts, [(0, 0)] * (parts.ndim - 1) + [(0, wide - own)])
        product = relax.Call(visited.op, [data, relax.const(added.reshape(*inner, groups * wide))], visited.attrs)
        return self._without([*outer, rows], self.builder_.emit(product), groups, wide, own)

    def _with_wide_tensor(self, call: Any, visited: Any) -> Any:
        """Pad the right tensor of a product of two; an operator that produces it writes the padding, too."""
        *outer, rows, columns = map(int, call.ty.shape.values)
        wide = self._machine.whole(rows, columns, padding=_COPIED / (2 * rows), allow_remainder=True)
        if wide == columns:
            return visited
        data, other = visited.args
        widths = [0] * (2 * len(outer) + 3) + [wide - columns]
        padded = self.builder_.emit(relax.op.nn.pad(other, widths))
        product = self.builder_.emit(relax.Call(visited.op, [data, padded], visited.attrs))
        return self._without([*outer, rows], product, 1, wide, columns)

    def _without(self, outer: list[int], product: Any, groups: int, wide: int, own: int) -> Any:
        """Leave out the columns that were added to each group."""
        last = len(outer)
        if groups == 1:
            return relax.op.strided_slice(product, axes=[last], begin=[0], end=[own])
        kept = np.arange(groups * wide, dtype=np.int32).reshape(groups, wide)[:, :own]
        return shuffles.rearranged(product, kept.reshape(-1), axis=last)


def _may_be_padded(call: Any) -> bool:
    """Return whether a call multiplies by constants whose last axis are the columns of the result."""
    name = calls.operator(call)
    if name not in (calls.CONVOLUTION, calls.MATRIX_PRODUCT) or not isinstance(call.args[1], tvm.ir.GenericConst):
        return False
    if {str(each.ty.dtype) for each in (*call.args, call)} != {_DTYPE}:
        return False
    made = calls.sizes(call)
    if made is None or len(made) < 2 or not all(made):
        return False
    if name == calls.MATRIX_PRODUCT:
        return len(call.args[1].ty.shape.values) == 2
    return (call.attrs.kernel_layout, call.attrs.out_layout) == ("HWIO", "NHWC")


def _is_of_tensors(call: Any) -> bool:
    """Return whether a call is a product of two computed tensors, of which the right one has all outer dimensions."""
    if calls.operator(call) != calls.MATRIX_PRODUCT or any(isinstance(each, tvm.ir.GenericConst) for each in call.args):
        return False
    if {str(each.ty.dtype) for each in (*call.args, call)} != {_DTYPE}:
        return False
    left, right, made = (calls.sizes(each) for each in (*call.args, call))
    if left is None or right is None or made is None or len(left) != len(right) or len(left) < 2:
        return False
    return right[:-2] == made[:-2] and all(made)
