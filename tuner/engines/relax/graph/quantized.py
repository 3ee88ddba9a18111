"""Quantized networks (QDQ) as float32 products of integers, which ``narrowing`` turns into products of bytes.

In float32, sums of products of bytes are exact up to 2²⁴, so that this form computes the same integers. Its operators
have layouts, which TVM's ``quantize`` and ``dequantize`` have not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tuner.engines.relax.graph import calls

_QUANTIZE, _DEQUANTIZE, _TRANSPOSE = "relax.quantize", "relax.dequantize", "relax.permute_dims"
_ROUND, _LIMITS = "relax.round", ("relax.maximum", "relax.minimum")
_LARGEST = 255
"""Largest unsigned byte."""
_OFFSETS = {"uint8": 0, "int8": 128}
"""What makes a byte unsigned, by dtype."""
_DTYPE = "float32"


def is_quantized(module: Any) -> bool:
    """Return whether a module as imported has quantized operators, or may have what replaces them (``round``)."""
    found: set[str] = set()
    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, lambda each: found.add(calls.operator(each)))
    return not found.isdisjoint((_QUANTIZE, _DEQUANTIZE, _ROUND))


def spell_out(module: Any) -> Any:
    """Return an ``IRModule`` with quantized operands replaced; ``module`` is changed, too."""
    return relax.transform.DeadCodeElimination()(calls.mutate(module, _SpellingOut))


@dataclass(frozen=True, kw_only=True)
class _Rounded:
    """Data and how it is quantized, to unsigned bytes."""

    data: Any
    scale: float
    zero: int


@relax.expr_functor.mutator
class _SpellingOut(relax.PyExprMutator):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self._values = {each.var: each.value for each in calls.bindings(function)}
        self._integers: dict[Any, Any] = {}

    def visit_binding_block_(self, block: Any) -> Any:
        self._integers.clear()
        return super().visit_binding_block_(block)

    def visit_call_(self, call: Any) -> Any:
        name = calls.operator(call)
        if name == _DEQUANTIZE:
            constant, rounded = _constant(call), self._rounded(call)
            if constant is not None:
                return relax.const(constant[0] * constant[1])
            if rounded is None:
                return self.visit_expr_post_order(call)
            integers = self._as_integers(rounded)
            return relax.op.multiply(integers, _filled(rounded.data, rounded.scale))
        if name in (calls.MATRIX_PRODUCT, calls.CONVOLUTION):
            rounded, weights = self._rounded(self._value(call.args[0])), self._weights(call.args[1])
            if rounded and weights and _has_scales_of_columns(name, *weights):
                return self._product(call, rounded, *weights)
        return self.visit_expr_post_order(call)

    def _value(self, expr: Any) -> Any:
        return self._values.get(expr, expr)

    def _rounded(self, value: Any) -> _Rounded | None:
        """Return what a value is the rounded form of, if its bytes have one scale."""
        if calls.operator(value) != _DEQUANTIZE or not _is_wide(value):
            return None
        given = self._value(value.args[0])
        if calls.operator(given) != _QUANTIZE or str(given.attrs.out_dtype) not in _OFFSETS:
            return None
        if str(given.args[0].ty.dtype) != _DTYPE or int(given.args[0].ty.ndim) < 0:
            return None
        scale, zero, *others = (_number(each.args[place]) for each in (value, given) for place in (1, 2))
        if scale is None or zero is None or others != [scale, zero]:
            return None
        return _Rounded(data=given.args[0], scale=scale, zero=int(zero) + _OFFSETS[str(given.attrs.out_dtype)])

    def _weights(self, expr: Any) -> tuple[Any, Any] | None:
        """Return the integers of constant weights and their scales, which broadcast."""
        value = self._value(expr)
        if calls.operator(value) == _DEQUANTIZE:
            return _constant(value)
        if calls.operator(value) != _TRANSPOSE:
            return None
        found = self._weights(value.args[0])
        if found is None:
            return None
        axes = value.attrs.axes and [int(axis) for axis in value.attrs.axes]
        return found[0].transpose(axes), found[1].transpose(axes)

    def _product(self, call: Any, rounded: _Rounded, weights: Any, scales: Any) -> Any:
        product = relax.Call(call.op, [self._as_integers(rounded), relax.const(weights)], call.attrs)
        columns = (1, -1, 1, 1) if calls.operator(call) == calls.CONVOLUTION else (-1,)
        factor = (np.float32(rounded.scale) * scales).reshape(columns)
        return relax.op.multiply(self.builder_.emit(product), relax.const(factor))

    def _as_integers(self, rounded: _Rounded) -> Any:
        """Emit unsigned bytes less their zero point, in float32."""
        key = (rounded.data, rounded.scale, rounded.zero)
        if key not in self._integers:
            value = relax.op.divide(self.visit_expr(rounded.data), _filled(rounded.data, rounded.scale))
            value = relax.op.round(self.builder_.emit(value))
            for operator, number in ((relax.op.maximum, -rounded.zero), (relax.op.minimum, _LARGEST - rounded.zero)):
                value = operator(self.builder_.emit(value), _filled(rounded.data, number))
            self._integers[key] = self.builder_.emit(value)
        return self._integers[key]


def _filled(like: Any, number: float) -> Any:
    """Return a tensor of one number and as many dimensions, so that functions which differ in it alone are one."""
    return relax.const(np.full([1] * int(like.ty.ndim), number, _DTYPE))


def _constant(value: Any) -> tuple[Any, Any] | None:
    """Return the integers less their zero points, in float32, and scales, which broadcast, of dequantized constants."""
    integers, scales, zeros = map(calls.constant, value.args)
    if integers is None or scales is None or zeros is None or not _is_wide(value):
        return None
    shape = [1] * integers.ndim
    if scales.size > 1:
        shape[int(value.attrs.axis)] = -1
    return integers.astype(_DTYPE) - zeros.astype(_DTYPE).reshape(shape), scales.reshape(shape)


def _is_wide(dequantized: Any) -> bool:
    return str(dequantized.attrs.out_dtype) == _DTYPE


def _has_scales_of_columns(name: str, weights: Any, scales: Any) -> bool:
    columns = 0 if name == calls.CONVOLUTION else weights.ndim - 1
    return weights.ndim > 1 and all(size == 1 for axis, size in enumerate(scales.shape) if axis != columns)


def _number(value: Any) -> float | None:
    """Return the only number of a constant."""
    found = calls.constant(value)
    return None if found is None or found.size != 1 else float(found.item())


def zero_point(variable: Any, values: calls.Bindings) -> int | None:
    """Return what makes a variable's data unsigned bytes if it is added to them; None unless they were rounded."""
    found = rounding(variable, values)
    return None if found is None else found.zero


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How a variable's data were made integers."""

    zero: int
    """What makes the integers unsigned bytes if it is added to them."""
    data: Any | None
    """The variable of which they are the nearest ones in the range of these bytes; None if they were moved or changed
    since."""


def rounding(variable: Any, values: calls.Bindings) -> Rounding | None:
    """Return how a variable's data were made integers of a range of 256 at most; None unless they were.

    They were rounded, shifted by an integer, limited, and shifted again: by ``spell_out``, or by the onnx engine, which
    replaces quantized operators.
    """
    passed = [variable]

    def before(operand: Any) -> Any:
        passed.append(operand)
        return calls.origin(operand, values)

    value = calls.origin(variable, values)
    shift: float | None = 0.0
    if calls.operator(value) == "relax.subtract":
        shift, value = _number(value.args[1]), before(value.args[0])
    limits: dict[str, float | None] = {}
    while calls.operator(value) in _LIMITS and calls.operator(value) not in limits:
        limits[calls.operator(value)] = _number(value.args[1])
        value = before(value.args[0])
    numbers = [shift, *map(limits.get, _LIMITS)]
    if calls.operator(value) == "relax.add":
        numbers.append(_number(value.args[1]))
        value = before(value.args[0])
    integers = [int(each) for each in numbers if each is not None and each.is_integer()]
    if calls.operator(value) != _ROUND or len(integers) < len(numbers):
        return None
    shifted, least, most, *added = integers
    # Zeros that were put around the data in between lie within the limits, too.
    if not (least <= 0 <= most and most - least <= _LARGEST and 0 <= shifted - least <= _LARGEST):
        return None
    is_moved = any(calls.origin(each, values) is not values.get(each) for each in passed)
    is_whole = not is_moved and most - least == _LARGEST and (added or [0]) == [shifted]
    return Rounding(zero=shifted - least, data=value.args[0] if is_whole else None)


def is_sum_of_integers(variable: Any, values: calls.Bindings) -> bool:
    """Return whether a variable's data are sums of products of integers, which may include constant ones."""
    value: Any = values.get(variable)
    if calls.operator(value) == "relax.add":
        if not _is_whole(calls.constant(value.args[1])):
            return False
        value = values.get(value.args[0])
    if calls.operator(value) == "relax.strided_slice":
        value = values.get(value.args[0])
    if calls.operator(value) not in (calls.CONVOLUTION, calls.MATRIX_PRODUCT):
        return False
    return _is_whole(calls.constant(value.args[1])) and rounding(value.args[0], values) is not None


def _is_whole(values: Any | None) -> bool:
    """Return whether the numbers of a constant are integers; not if there is no constant."""
    return values is not None and bool((values == np.rint(values)).all())


def are_bytes(values: Any) -> bool:
    """Return whether numbers are integers of a signed byte."""
    return _is_whole(values) and bool(np.all((values >= -128) & (values < 128)))
