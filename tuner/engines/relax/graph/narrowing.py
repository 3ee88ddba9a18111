"""Conversion of products to operands of 16 or 8 bits, for builds in bf16 and int8; other operators stay in float32.

An image that a convolution reads is stored only in narrow numbers, for all its readers: that is fewer bytes, and the
rounding is fused into the operator that produces the image. So is a quantized image that a depthwise convolution
reads, although no instruction multiplies its bytes. Other tensors are stored in float32 as well, for operators such as
residual additions.

In bf16, any product may be narrow. The onnx engine's ``narrowing`` marks a layer that must stay in float32 by a cast of
its data from float32 to float32. In int8, products are narrow whose operands are integers (``quantized``); an unsigned
byte is such an integer plus its zero point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi

from tuner.engines.relax.graph import calls, products, quantized
from tuner.engines.relax.graph.products import Numbers
from tuner.engines.relax.machines import vector_width

_DTYPE = "float32"
_LARGEST, _INTEGERS = (tirx.const(each, _DTYPE) for each in (255, 1.5 * 2**23))
_FEWEST_LANES = 4
"""Minimum vector width."""
_FEWEST = 16
"""Minimum number of rows and minimum depth of a product of two tensors, whose right operand is packed in every run."""


def takes(module: Any, precision: str) -> Callable[[Any], bool]:
    """Return the predicate of calls in ``module``, products, whose operands can be narrow if their sizes fit."""
    if precision not in _KINDS:
        return lambda _: False
    functions = [each for _, each in module.functions_items() if isinstance(each, relax.Function)]
    values = {each.var: each.value for function in functions for each in calls.bindings(function)}
    return _KINDS[precision](values).takes


def narrow(module: Any, precision: str, keeps: Callable[[Any], bool]) -> Any:
    """Return an ``IRModule`` whose products have narrow operands, except those for which ``keeps`` returns true.

    The network has no control flow.
    """
    mutator = _Narrowing(module, precision, keeps)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mutator.convert(variable, function)
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mutator.builder_.get())


class _Bfloat16:
    """Operands rounded to bfloat16."""

    numbers = products.BFLOAT16

    def __init__(self, values: calls.Bindings) -> None:
        self._values = values

    def takes(self, call: Any) -> bool:
        """Return whether a product that ``_fits`` is narrow: it has no mark."""
        value = calls.origin(call.args[0], self._values)
        return not (calls.operator(value) == "relax.astype" and value.args[0].ty.dtype == value.ty.dtype)

    def widens(self, call: Any) -> bool:  # noqa: ARG002 - as the other
        """Return whether a call is a depthwise convolution that reads stored numbers."""
        return False

    def zero(self, variable: Any) -> int | None:  # noqa: ARG002 - as the other
        """Return the stored number that is 0; None if it is 0 for all data."""
        return None

    def storing(self, variable: Any) -> tuple[Any, Callable[..., Any]]:
        """Return the variable from whose numbers those of ``variable`` are stored, and the function that converts them.

        The function takes the expression of a number, and of the zero point if there is one.
        """
        return variable, self._stored

    def _stored(self, number: Any) -> Any:
        """Return the expression of the nearest bfloat16, ties to even."""
        found = tirx.reinterpret(products.GROUP, number)
        odd = found >> _bits(16) & _bits(1)
        return (found + _bits(0x7FFF) + odd >> _bits(16)).astype(self.numbers.stored)

    def read(self, number: Any) -> Any:
        """Return the expression of a stored number's value in float32."""
        return tirx.reinterpret(_DTYPE, number.astype(products.GROUP) << _bits(16))

    def weights(self, values: Any) -> Any:
        """Return stored numbers as uint32."""
        found = np.ascontiguousarray(values).view("uint32")
        return found + 0x7FFF + (found >> 16 & 1) >> 16

    def result(self, emit: Callable[[Any], Any], sums: Any, call: Any) -> Any:  # noqa: ARG002 - as the other
        """Return a product in float32, given the sums of products of stored numbers."""
        return sums


class _Bytes:
    """Operands that are integers: unsigned bytes less a zero point, and signed bytes."""

    numbers = products.BYTES

    def __init__(self, values: calls.Bindings) -> None:
        self._values = values

    def widens(self, call: Any) -> bool:
        return _is_depthwise(call) and quantized.rounding(call.args[0], self._values) is not None

    def takes(self, call: Any) -> bool:
        weights = call.args[1]
        return (
            isinstance(weights, tvm.ir.GenericConst)
            and quantized.zero_point(call.args[0], self._values) is not None
            and quantized.are_bytes(weights.value.numpy())
        )

    def zero(self, variable: Any) -> int | None:
        found = quantized.zero_point(variable, self._values)
        if found is None:
            raise ValueError("only data of products that it takes are stored")
        return found

    def storing(self, variable: Any) -> tuple[Any, Callable[..., Any]]:
        found = quantized.rounding(variable, self._values)
        return (variable, self._stored) if found is None or found.data is None else (found.data, self._rounded)

    def _stored(self, number: Any, zero: Any = None) -> Any:
        return (number if zero is None else number + zero).astype(self.numbers.stored)

    def _rounded(self, number: Any, zero: Any = None) -> Any:
        """Return the expression of the nearest byte, ties to even."""
        least = tirx.const(0.0, _DTYPE) if zero is None else -zero
        limited = tirx.max(tirx.min(number, _LARGEST + least), least)
        # The nearest integer of a small number is in the lowest bits of its sum with 1.5 × 2²³.
        found = tirx.reinterpret("int32", limited + _INTEGERS)
        return (found if zero is None else found + zero.astype("int32")).astype(self.numbers.stored)

    def read(self, number: Any, zero: Any = None) -> Any:
        return number.astype(_DTYPE) if zero is None else number.astype(_DTYPE) - zero

    def weights(self, values: Any) -> Any:
        return values.astype("int8").view("uint8").astype("uint32")

    def result(self, emit: Callable[[Any], Any], sums: Any, call: Any) -> Any:
        data, weights = call.args
        if zero := self.zero(data):
            values = weights.value.numpy()
            excess = zero * values.sum(axis=tuple(range(values.ndim - 1)), dtype="int64")
            sums = emit(relax.op.subtract(sums, relax.const(excess.astype("int32"))))
        return relax.op.astype(sums, _DTYPE)


_KINDS: dict[str, type[_Bfloat16 | _Bytes]] = {"bf16": _Bfloat16, "int8": _Bytes}
NUMBERS: dict[str, Numbers] = {precision: kind.numbers for precision, kind in _KINDS.items()}
"""By precision."""


@relax.expr_functor.mutator
class _Narrowing(relax.PyExprMutator):
    def __init__(self, module: Any, precision: str, keeps: Callable[[Any], bool]) -> None:
        super().__init__(module)
        self._keeps = keeps
        self._values: dict[Any, Any] = {}
        self._kind = _KINDS[precision](self._values)
        self._images: set[Any] = set()
        self._stored: dict[Any, Any] = {}

    def convert(self, variable: Any, function: Any) -> None:
        bindings = calls.bindings(function)
        self._values.update({each.var: each.value for each in bindings})
        narrow = [each.value for each in bindings if self._kind.widens(each.value) or self._is_narrow(each.value)]
        self._images = {each.args[0] for each in narrow if calls.operator(each) == calls.CONVOLUTION}
        self.builder_.update_func(variable, self.builder_.normalize(self.visit_expr(function)))

    def visit_binding_block_(self, block: Any) -> Any:
        self._stored.clear()
        return super().visit_binding_block_(block)

    def visit_dataflow_var_(self, variable: Any) -> Any:
        return self._read(variable, super().visit_dataflow_var_(variable))

    def visit_var_(self, variable: Any) -> Any:
        return self._read(variable, super().visit_var_(variable))

    def _read(self, variable: Any, value: Any) -> Any:
        if variable not in self._images:
            return value
        return self._emit("widened", _elementwise(self._kind.read), self._store(variable, value), *self._zero(variable))

    def _store(self, variable: Any, value: Any, *, is_whole: bool = False) -> Any:
        key = (variable, is_whole)
        if key not in self._stored:
            source, stored = self._kind.storing(variable)
            compute = _elementwise(stored, self._kind.numbers if is_whole else None)
            value = value if source is variable else self.visit_expr(source)
            self._stored[key] = self._emit("rounded", compute, value, *self._zero(variable))
        return self._stored[key]

    def _emit(self, name: str, compute: Callable[..., Any], *values: Any) -> Any:
        return self.builder_.emit(self.builder_.call_te(compute, *values, primfunc_name_hint=name))

    def _zero(self, variable: Any, of: str = _DTYPE) -> list[Any]:
        """Return the zero point, unless it is 0, as a tensor, so that functions which differ in it alone are one."""
        zero = self._kind.zero(variable)
        return [relax.const(np.array([zero], of))] if zero else []

    def _narrowed(self, variable: Any, *, is_whole: bool = False) -> Any:
        plain = super().visit_dataflow_var_ if isinstance(variable, relax.DataflowVar) else super().visit_var_
        return self._store(variable, plain(variable), is_whole=is_whole)

    def visit_call_(self, call: Any) -> Any:
        if calls.operator(call) == "relax.round" and quantized.is_sum_of_integers(call.args[0], self._values):
            return self.visit_expr(call.args[0])
        if self._kind.widens(call):
            return self._widened(call)
        if not self._is_narrow(call):
            return self.visit_expr_post_order(call)
        (data, other), numbers = call.args, self._kind.numbers
        right = self._packed(other) if isinstance(other, tvm.ir.GenericConst) else None
        if calls.operator(call) == calls.CONVOLUTION:
            border = self._zero(data, of=self._kind.numbers.stored) if any(map(int, call.attrs.padding)) else []
            compute = _convolution(numbers, call.attrs)
            return self._multiply("conv2d", compute, call, self._narrowed(data), right, *border)
        left = self._narrowed(data, is_whole=int(data.ty.shape.values[-1]) % numbers.group > 0)
        if right is None:
            right = self._emit("packed", lambda each: products.grouped(numbers, each), self._narrowed(other))
        return self._multiply("matmul", lambda *each: products.matrix_product(numbers, *each), call, left, right)

    def _widened(self, call: Any) -> Any:
        """Emit a depthwise convolution of stored numbers, each of which is read as float32 where it is used."""
        data, weights = call.args
        read, attributes = _elementwise(self._kind.read), call.attrs

        def compute(image: Any, kernel: Any, *zero: Any) -> Any:
            sizes = (list(map(int, each)) for each in (attributes.strides, attributes.padding, attributes.dilation))
            layouts = {"data_layout": attributes.data_layout, "kernel_layout": attributes.kernel_layout}
            return topi.nn.conv(read(image, *zero), kernel, *sizes, int(attributes.groups), **layouts)

        return self.builder_.call_te(
            compute, self._narrowed(data), weights, *self._zero(data), primfunc_name_hint="conv2d",
            primfunc_attrs={"op_pattern": calls.FUSES_ELEMENTWISE},
        )  # fmt: skip

    def _multiply(self, name: str, compute: Callable[..., Any], call: Any, *operands: Any) -> Any:
        sums = self.builder_.call_te(
            compute,
            *operands,
            primfunc_name_hint=f"narrow_{name}",
            primfunc_attrs={"op_pattern": calls.FUSES_ELEMENTWISE},
        )
        return self._kind.result(self.builder_.emit, sums, call)

    def _packed(self, constant: Any) -> Any:
        """Return constant weights (…, depth, columns) as groups (…, groups, columns)."""
        values, group = constant.value.numpy(), self._kind.numbers.group
        missing = -values.shape[-2] % group
        if missing:
            values = np.pad(values, [(0, 0)] * (values.ndim - 2) + [(0, missing), (0, 0)])
        stored = self._kind.weights(values)
        parts = [stored[..., place::group, :] << (32 // group * place) for place in range(group)]
        return relax.const(tvm.runtime.tensor(np.bitwise_or.reduce(parts)))

    def _is_narrow(self, value: Any) -> bool:
        return _fits(value) and self._kind.takes(value) and not self._keeps(value)


def _elementwise(compute: Callable[..., Any], whole: Numbers | None = None) -> Callable[..., Any]:
    """Return what applies ``compute`` to a tensor's numbers and its zero point, if it has one.

    ``whole``: and appends zeros to the last axis to have whole groups.
    """

    def elementwise(data: Any, *zero: Any) -> Any:
        *outer, last = data.shape
        missing = -int(last) % whole.group if whole else 0

        def number(*place: Any) -> Any:
            found = compute(data[place], *(each[0] for each in zero))
            return products.before(whole, last, place[-1], found) if whole and missing else found

        return te.compute((*outer, last + missing), number)

    return elementwise


def _fits(value: Any) -> bool:
    """Return whether a value is a product that an instruction can compute in vectors."""
    name = calls.operator(value)
    if name not in (calls.CONVOLUTION, calls.MATRIX_PRODUCT) or isinstance(value.args[0], tvm.ir.GenericConst):
        return False
    if {str(each.ty.dtype) for each in (*value.args, value)} != {_DTYPE}:
        return False
    if any(len(calls.sizes(each) or ()) < 2 for each in (*value.args, value)):
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
        return len(other.ty.shape.values) == 2
    outer, others = (list(map(int, each.ty.shape.values))[:-2] for each in (data, other))
    return outer == others and min(rows, depth) >= _FEWEST


def _is_depthwise(value: Any) -> bool:
    if not calls.is_image_convolution(value):
        return False
    *_, inputs, filters = (int(size) for size in value.args[1].ty.shape.values)
    return inputs == 1 and int(value.attrs.groups) == filters == int(value.args[0].ty.shape.values[-1])


def _convolution(numbers: Numbers, attributes: Any) -> Callable[..., Any]:
    strides, padding, dilation = (
        tuple(map(int, each)) for each in (attributes.strides, attributes.padding, attributes.dilation)
    )

    def convolution(data: Any, weights: Any, border: Any = None) -> Any:
        return products.convolution(numbers, data, weights, border, strides=strides, padding=padding, dilation=dilation)

    return convolution


def _bits(value: int) -> Any:
    return tirx.const(value, products.GROUP)
