"""Vectorized transcendental functions in place of a libm call for each element, for builds that may be rewritten.

TVM's ``topi.fast_tanh`` and ``fast_erf`` (Eigen's rational functions), as in ``tuner.engines.relay.fast_math``, and
Cephes' ``logf``, ``sinf`` and ``cosf``. The exponential is as exact as ``topi.fast_exp`` and quicker. All are in
float32; measured errors are in docs/decisions/0019-cheaper-operators.md and 0094-cheaper-exponentials.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from tuner.engines.relax.graph import calls

_DTYPE = "float32"
"""The only dtype replaced; narrower numbers would lose more by rounding than is gained."""
_RECIPROCALS = (1e-30, 1e30)
"""Range of divisors whose reciprocals are normal numbers as well."""


def plain(module: Any) -> Any:
    """Return an ``IRModule`` whose float32 activations, constant powers and divisions are simpler operators."""
    return calls.mutate(module, lambda _: _Plain())


@relax.expr_functor.mutator
class _Plain(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        name = calls.operator(visited)
        if name not in _PLAIN or call.ty.dtype != _DTYPE:
            return visited
        return _PLAIN[name](visited, lambda made: self.builder_.emit(made))


Emit = Callable[[Any], Any]


def _sigmoid(call: Any, emit: Emit) -> Any:
    return relax.op.divide(_number(1), _grown(call.args[0], emit))


def _silu(call: Any, emit: Emit) -> Any:
    return relax.op.divide(call.args[0], _grown(call.args[0], emit))


def _grown(value: Any, emit: Emit) -> Any:
    """Return 1 + exp(-value), which is infinite where the sigmoid is 0."""
    return emit(relax.op.add(emit(relax.op.exp(emit(relax.op.negative(value)))), _number(1)))


def _gelu(call: Any, emit: Emit) -> Any:
    erf = emit(relax.op.erf(emit(relax.op.multiply(call.args[0], _number(math.sqrt(0.5))))))
    return _half_and_part(call.args[0], erf, emit)


def _gelu_tanh(call: Any, emit: Emit) -> Any:
    value = call.args[0]
    square = emit(relax.op.multiply(value, value))
    bent = emit(relax.op.add(emit(relax.op.multiply(square, _number(0.044715))), _number(1)))
    scaled = emit(relax.op.multiply(value, _number(math.sqrt(2 / math.pi))))
    return _half_and_part(value, emit(relax.op.tanh(emit(relax.op.multiply(scaled, bent)))), emit)


def _half_and_part(value: Any, part: Any, emit: Emit) -> Any:
    half = emit(relax.op.multiply(value, _number(0.5)))
    return relax.op.multiply(half, emit(relax.op.add(part, _number(1))))


def _divided(call: Any, emit: Emit) -> Any:  # noqa: ARG001 - as the others
    divisor = calls.constant(call.args[1])
    smallest, largest = _RECIPROCALS
    if divisor is None or not np.all((np.abs(divisor) >= smallest) & (np.abs(divisor) <= largest)):
        return call
    return relax.op.multiply(call.args[0], relax.const((1 / divisor).astype(_DTYPE)))


def _power(call: Any, emit: Emit) -> Any:
    value, exponent = call.args[0], calls.constant(call.args[1])
    # An exponent with more dimensions than the base would add dimensions to the result.
    if exponent is None or exponent.size > 1 or exponent.ndim > len(value.ty.shape):
        return call
    make = _POWERS.get(float(exponent.flat[0]))
    return make(value, emit) if make else call


def _squared(value: Any, emit: Emit) -> Any:  # noqa: ARG001 - as the others
    return relax.op.multiply(value, value)


_POWERS: dict[float, Callable[[Any, Emit], Any]] = {
    -1.0: lambda value, _: relax.op.divide(_number(1), value),
    -0.5: lambda value, emit: relax.op.divide(_number(1), emit(relax.op.sqrt(value))),
    0.5: lambda value, _: relax.op.sqrt(value),
    1.5: lambda value, emit: relax.op.multiply(value, emit(relax.op.sqrt(value))),
    2.0: _squared,
    3.0: lambda value, emit: relax.op.multiply(emit(_squared(value, emit)), value),
    4.0: lambda value, emit: _squared(emit(_squared(value, emit)), emit),
}


def _log_softmax(call: Any, emit: Emit) -> Any:
    value, axis = call.args[0], int(call.attrs.axis)
    lower = emit(relax.op.subtract(value, emit(relax.op.max(value, axis, keepdims=True))))
    total = emit(relax.op.sum(emit(relax.op.exp(lower)), axis, keepdims=True))
    return relax.op.subtract(lower, emit(relax.op.log(total)))


def _number(value: float) -> Any:
    return relax.const(np.array(value, _DTYPE))


_PLAIN: dict[str, Callable[[Any, Emit], Any]] = {
    "relax.sigmoid": _sigmoid,
    "relax.nn.silu": _silu,
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.log_softmax": _log_softmax,
    "relax.divide": _divided,
    "relax.power": _power,
}


def _fast_exp(data: Any) -> Any:
    """Return exponentials, of float32, off by less than 1.3e-7 of them up to 88.376, and infinite above."""
    return te.compute(data.shape, lambda *place: exponential(data[place]))


_EXP = (
    1.3836835513747186e-3, 8.374824056388563e-3, 4.166822619338388e-2, 1.6666420072032342e-1, 4.9999992075070604e-1,
    1.0000000363447423, 1.000000000554609,
)  # fmt: skip
"""Factors of the polynomial with the smallest relative error, 1.9e-9, for what is left beyond whole powers of two."""
_LIMITS = (-88.376, 89.0)
"""Numbers whose exponentials count as 0 and as infinite.

Nearly none in between, and no sigmoid, is denormal: processors take a hundred times as long for such numbers.
"""
_ROUNDING = 1.5 * 2.0**23 + 127
"""What makes a number whole if added: the low bits of the sum's mantissa are the exponent of a power of two."""


def exponential(value: Any) -> Any:
    """Return the exponential of a float32 expression: 2ⁿ exp(x), where ``value`` is n log(2) + x."""
    least, most = map(_f32, _LIMITS)
    above, bounded, x = (tirx.Var(name, _DTYPE) for name in ("above", "bounded", "x"))
    bits = tirx.Var("bits", "int32")
    # As a number again: TVM would simplify the sum and the difference to nothing.
    n = tirx.reinterpret(_DTYPE, bits) - _f32(_ROUNDING)
    power = tirx.reinterpret(_DTYPE, bits << _MANTISSA_BITS)
    high, low = map(_f32, _LOG_OF_2)
    found = tirx.Let(x, bounded - n * high - n * low, _polynomial(x, _EXP) * power)
    found = tirx.Let(bits, tirx.reinterpret("int32", bounded * _f32(1 / math.log(2)) + _f32(_ROUNDING)), found)
    found = tirx.Let(bounded, tirx.Select(above > most, most, above), found)
    return tirx.Let(above, tirx.Select(value < least, least, value), found)


def _fast_log(data: Any) -> Any:
    """Return natural logarithms, of float32, off by less than one unit in the last place."""
    return te.compute(data.shape, lambda *place: _log(data[place]))


_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""Factors of the polynomial for ``(log(1 + x) - x + x²/2) / x³``."""
_LOG_OF_2 = (0.693359375, -2.12194440e-4)
"""The number in two parts: products of the first one with exponents are exact."""
_SMALLEST_NORMAL, _LARGEST = float(np.finfo(_DTYPE).tiny), float(np.finfo(_DTYPE).max)
_SCALE_BITS, _MANTISSA_BITS = 23, 23
_ROOT_OF_HALF = int(np.float32(math.sqrt(0.5)).view(np.int32))


def _log(value: Any) -> Any:
    """Write the value as 2ⁿ (1 + x), where 1 + x lies between the roots of a half and of two."""
    is_tiny = value < _f32(_SMALLEST_NORMAL)
    bits = tirx.reinterpret("int32", tirx.Select(is_tiny, value * _f32(2.0**_SCALE_BITS), value))
    exponent = (bits - tirx.const(_ROOT_OF_HALF, "int32")) >> _MANTISSA_BITS
    x = tirx.reinterpret(_DTYPE, bits - (exponent << _MANTISSA_BITS)) - _f32(1)
    n = exponent.astype(_DTYPE) - tirx.Select(is_tiny, _f32(_SCALE_BITS), _f32(0))
    high, low = _LOG_OF_2
    small = _polynomial(x, _LOG) * x * x * x + n * _f32(low) - x * x * _f32(0.5)
    found = tirx.Select(value > _f32(_LARGEST), value, x + small + n * _f32(high))
    positive = tirx.Select(tirx.EQ(value, _f32(0)), _f32(-math.inf), found)
    return tirx.Select(value >= _f32(0), positive, _f32(math.nan))


def _fast_sin(data: Any) -> Any:
    """Return sines, of float32, off by less than 2e-7 for angles up to 2³⁰; larger ones count as whole quarters."""
    return te.compute(data.shape, lambda *place: _sine(data[place], quarters=0))


def _fast_cos(data: Any) -> Any:
    """Return cosines, see ``_fast_sin``."""
    return te.compute(data.shape, lambda *place: _sine(data[place], quarters=1))


_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_WIDE = "float64"
_LARGEST_ANGLE = 2.0**30


def _sine(value: Any, *, quarters: int) -> Any:
    """Return the sine of an angle and so many quarter turns.

    What is left of the angle beyond whole quarters is computed in float64, where it is exact enough without parts.
    """
    wide = value.astype(_WIDE)
    turned = tirx.floor(wide * tirx.const(2 / math.pi, _WIDE) + tirx.const(0.5, _WIDE))
    rest = (wide - turned * tirx.const(math.pi / 2, _WIDE)).astype(_DTYPE)
    # An infinite angle has no sine: what is left of it is not a number.
    size = tirx.abs(value)
    x = tirx.Select(tirx.all(size > _f32(_LARGEST_ANGLE), size <= _f32(_LARGEST)), _f32(0), rest)
    whole = turned + tirx.const(float(quarters), _WIDE)
    quarter = (whole - tirx.const(4.0, _WIDE) * tirx.floor(whole * tirx.const(0.25, _WIDE))).astype(_DTYPE)
    square = x * x
    sine = _polynomial(square, _SINE) * square * x + x
    cosine = _polynomial(square, _COSINE) * square * square - square * _f32(0.5) + _f32(1)
    found = tirx.Select(tirx.any(tirx.EQ(quarter, _f32(1)), tirx.EQ(quarter, _f32(3))), cosine, sine)
    return tirx.Select(quarter > _f32(1.5), -found, found)


def _polynomial(x: Any, factors: Sequence[float]) -> Any:
    """Return a polynomial by Horner's rule, the factor of the highest power first."""
    first, *others = map(_f32, factors)
    return functools.reduce(lambda found, factor: found * x + factor, others, first)


def _f32(value: float) -> Any:
    return tirx.const(float(value), _DTYPE)


_FAST: dict[str, Callable[[Any], Any]] = {
    "relax.exp": _fast_exp,
    "relax.erf": topi.fast_erf,
    "relax.tanh": topi.fast_tanh,
    "relax.log": _fast_log,
    "relax.sin": _fast_sin,
    "relax.cos": _fast_cos,
}


def legalizations() -> dict[str, Any]:
    """Return functions for ``LegalizeOps``, by operator."""
    return {name: calls.legalized(name, _computed(fast)) for name, fast in _FAST.items()}


def _computed(fast: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda builder, call: builder.call_te(fast, call.args[0])
