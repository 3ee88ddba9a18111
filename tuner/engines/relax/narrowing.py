"""Conversion of products to bfloat16 operands with float32 sums, for builds in bf16; all other operators stay float32.

An image that a convolution reads is stored only in bfloat16, for all its readers: half the bytes, and the rounding is
fused into the operator that produces the image. Other tensors are stored in float32 as well, for operators such as
residual additions. The onnx engine's ``narrowing`` marks a layer that must stay in float32 by a cast of its data from
float32 to float32. The relay engine's ``bf16_narrowing`` follows the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relax import calls, pairs
from tuner.engines.relax.machines import vector_width

_DTYPE = "float32"
_FEWEST_LANES = 4
"""Minimum vector width."""
_FEWEST = 16
"""Minimum number of rows and minimum depth of a product of two tensors, whose right operand is packed in every run; the
relay engine has the same limit."""
_MOVING = ("relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.nn.pad")
"""Operators that the importer and layout conversion insert between a mark and its product."""


def narrow(module: Any, keeps: Callable[[Any], bool]) -> Any:
    """Return an ``IRModule`` whose products have bfloat16 operands, except those for which ``keeps`` returns true.

    Raises EngineFailure ``unsupported_dtype`` if the network has control flow.
    """
    mutator = _Narrowing(module, keeps)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mutator.convert(variable, function)
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Narrowing(relax.PyExprMutator):
    def __init__(self, module: Any, keeps: Callable[[Any], bool]) -> None:
        super().__init__(module)
        self._keeps = keeps
        self._made: dict[Any, Any] = {}
        """Value of each variable."""
        self._images: set[Any] = set()
        self._rounded: dict[Any, Any] = {}

    def convert(self, variable: Any, function: Any) -> None:
        bindings = [each for block in function.body.blocks for each in block.bindings]
        if any(isinstance(each.value, relax.If) for each in bindings):
            raise EngineFailure(
                "unsupported_dtype",
                "the model cannot be converted to bf16: it has control flow",
                hint="Use precision f32.",
            )
        self._made = {each.var: each.value for each in bindings}
        products = [each.value for each in bindings if self._is_narrow(each.value)]
        self._images = {each.args[0] for each in products if calls.operator(each) == calls.CONVOLUTION}
        self.builder_.update_func(variable, self.builder_.normalize(self.visit_expr(function)))

    def visit_binding_block_(self, block: Any) -> Any:
        self._rounded.clear()
        return super().visit_binding_block_(block)

    def visit_dataflow_var_(self, variable: Any) -> Any:
        return self._read(variable, super().visit_dataflow_var_(variable))

    def visit_var_(self, variable: Any) -> Any:
        return self._read(variable, super().visit_var_(variable))

    def _read(self, variable: Any, value: Any) -> Any:
        if variable not in self._images:
            return value
        return self.builder_.emit(self.builder_.call_te(pairs.widened, self._round(variable, value)))

    def _round(self, variable: Any, value: Any, *, is_even: bool = False) -> Any:
        key = (variable, is_even)
        if key not in self._rounded:
            self._rounded[key] = self.builder_.emit(self.builder_.call_te(pairs.rounded, value, is_even=is_even))
        return self._rounded[key]

    def _narrowed(self, variable: Any, *, is_even: bool = False) -> Any:
        plain = super().visit_dataflow_var_ if isinstance(variable, relax.DataflowVar) else super().visit_var_
        return self._round(variable, plain(variable), is_even=is_even)

    def visit_call_(self, call: Any) -> Any:
        if not self._is_narrow(call):
            return self.visit_expr_post_order(call)
        data, other = call.args
        if calls.operator(call) == calls.CONVOLUTION:
            return self._multiply("conv2d", _convolution(call.attrs), self._narrowed(data), _weights(other))
        left = self._narrowed(data, is_even=int(data.ty.shape.values[-1]) % 2 == 1)
        if isinstance(other, tvm.ir.GenericConst):
            return self._multiply("matmul", pairs.matrix_product, left, _weights(other))
        right = self.builder_.emit(self.builder_.call_te(pairs.packed, self._narrowed(other)))
        return self._multiply("matmul", pairs.matrix_product, left, right)

    def _multiply(self, name: str, compute: Callable[..., Any], left: Any, right: Any) -> Any:
        return self.builder_.call_te(
            compute,
            left,
            right,
            primfunc_name_hint=f"narrow_{name}",
            primfunc_attrs={"op_pattern": calls.FUSES_ELEMENTWISE},
        )

    def _is_narrow(self, value: Any) -> bool:
        return _fits(value) and not self._is_marked(value.args[0]) and not self._keeps(value)

    def _is_marked(self, data: Any) -> bool:
        made: Any = self._made.get(data)
        while calls.operator(made) in _MOVING:
            made = self._made.get(made.args[0])
        return calls.operator(made) == "relax.astype" and bool(made.args[0].ty.dtype == made.ty.dtype)


def _fits(value: Any) -> bool:
    """Return whether a value is a product that the instruction can compute in vectors."""
    name = calls.operator(value)
    if name not in (calls.CONVOLUTION, calls.MATRIX_PRODUCT) or isinstance(value.args[0], tvm.ir.GenericConst):
        return False
    if {str(each.ty.dtype) for each in (*value.args, value)} != {_DTYPE} or not _is_static(value):
        return False
    *_, rows, columns = (int(size) for size in value.ty.shape.values)
    if vector_width(columns, _FEWEST_LANES) < _FEWEST_LANES:
        return False
    data, other = value.args
    if name == calls.CONVOLUTION:
        layouts = (value.attrs.data_layout, value.attrs.kernel_layout, value.attrs.out_layout)
        is_constant = isinstance(other, tvm.ir.GenericConst)
        return is_constant and layouts == ("NHWC", "HWIO", "NHWC") and int(value.attrs.groups) == 1
    depth = int(data.ty.shape.values[-1])
    if isinstance(other, tvm.ir.GenericConst):
        return _rank(other) == 2
    outer, others = (list(map(int, each.ty.shape.values))[:-2] for each in (data, other))
    return outer == others and min(rows, depth) >= _FEWEST


def _is_static(value: Any) -> bool:
    shapes = [each.ty.shape for each in (*value.args, value)]
    return all(
        isinstance(shape, relax.ShapeExpr) and len(shape) >= 2 and all(isinstance(size, tirx.IntImm) for size in shape)
        for shape in shapes
    )


def _rank(value: Any) -> int:
    return len(value.ty.shape.values)


def _convolution(attributes: Any) -> Callable[[Any, Any], Any]:
    strides, padding, dilation = (
        tuple(map(int, each)) for each in (attributes.strides, attributes.padding, attributes.dilation)
    )

    def convolution(data: Any, weights: Any) -> Any:
        return pairs.convolution(data, weights, strides=strides, padding=padding, dilation=dilation)

    return convolution


def _weights(constant: Any) -> Any:
    """Return constant weights (…, depth, columns) as pairs (…, depth / 2, columns)."""
    values = constant.value.numpy()
    if values.shape[-2] % 2:
        values = np.pad(values, [(0, 0)] * (values.ndim - 2) + [(0, 1), (0, 0)])
    found = np.ascontiguousarray(values).view("uint32")
    bits = found + 0x7FFF + (found >> 16 & 1) >> 16
    return relax.const(tvm.runtime.tensor(bits[..., 0::2, :] | bits[..., 1::2, :] << 16))
