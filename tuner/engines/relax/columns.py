"""Columns of convolutions and dense layers padded to whole tiles of vectors, for builds that may be rewritten.

Tiles divide the columns: 38 filters leave vectors of two values, 360 those of eight, and 368, which are 23 vectors of
16, tiles of a single one. Zeros are added to the weights, and what they add to the result is left out where sums are
stored, so that no other operator sees it. ``onnx.rewriting.aligned`` pads what other operators compute as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tuner.engines.relax import filtering
from tuner.engines.relax.machines import Machine, whole

_CONVOLUTION, _PRODUCT = "relax.nn.conv2d", "relax.matmul"
_DTYPE = "float32"


def pad(module: Any, machine: Machine) -> Any:
    """Return an ``IRModule`` whose products with constants have more columns where that saves time."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            module[variable] = _Padding(machine).visit_expr(function)
    return module


@relax.expr_functor.mutator
class _Padding(relax.PyExprMutator):
    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if not _may_be_padded(call, self._machine):
            return visited
        *_, rows, columns = map(int, call.ty.shape.values)
        added = whole(rows, columns, self._machine) - columns
        if added == 0:
            return visited
        data, kernel = visited.args
        values = kernel.value.numpy()
        wider = relax.const(np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, added)]))
        product = self.builder_.emit(relax.Call(visited.op, [data, wider], visited.attrs))
        return relax.op.strided_slice(product, axes=[len(call.ty.shape.values) - 1], begin=[0], end=[columns])


def _may_be_padded(call: Any, machine: Machine) -> bool:
    """Return whether a call multiplies by constants whose last axis are the columns of the result."""
    name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
    if name not in (_CONVOLUTION, _PRODUCT) or not isinstance(call.args[1], tvm.ir.GenericConst):
        return False
    if {str(each.ty.dtype) for each in (*call.args, call)} != {_DTYPE}:
        return False
    sizes = call.ty.shape.values
    if len(sizes) < 2 or not all(isinstance(size, tirx.IntImm) for size in sizes):
        return False
    if name == _PRODUCT:
        return len(call.args[1].ty.shape.values) == 2
    # Filtering adds filters of its own.
    if filtering.pays(call, machine):
        return False
    return int(call.attrs.groups) == 1 and (call.attrs.kernel_layout, call.attrs.out_layout) == ("HWIO", "NHWC")
