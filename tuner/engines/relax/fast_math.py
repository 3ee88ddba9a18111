"""Vectorized transcendental functions in place of a libm call for each element, for builds that may be rewritten.

Like ``tuner.engines.relay.fast_math``: TVM's ``topi.fast_exp`` (Cephes' polynomial), ``fast_tanh`` and ``fast_erf``
(Eigen's rational functions) in float32. Their measured errors are in docs/decisions/0019-cheaper-operators.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, topi

from tuner.engines.relax import calls

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
    divisor = _constant(call.args[1])
    smallest, largest = _RECIPROCALS
    if divisor is None or not np.all((np.abs(divisor) >= smallest) & (np.abs(divisor) <= largest)):
        return call
    return relax.op.multiply(call.args[0], relax.const((1 / divisor).astype(_DTYPE)))


def _power(call: Any, emit: Emit) -> Any:
    value, exponent = call.args[0], _constant(call.args[1])
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


def _constant(value: Any) -> Any | None:
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


def _number(value: float) -> Any:
    return relax.const(np.array(value, _DTYPE))


_PLAIN: dict[str, Callable[[Any, Emit], Any]] = {
    "relax.sigmoid": _sigmoid,
    "relax.nn.silu": _silu,
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.divide": _divided,
    "relax.power": _power,
}


def _legalized(name: str, compute: Callable[..., Any], attributes: Callable[[Any], tuple[Any, ...]]) -> Any:
    usual = tvm.ir.Op.get(name).get_attr("FLegalize")

    def legalize(builder: Any, call: Any) -> Any:
        if call.args[0].ty.dtype != _DTYPE:
            return usual(builder, call)
        return builder.call_te(compute, call.args[0], *attributes(call.attrs))

    return legalize


def legalizations() -> dict[str, Any]:
    """Return functions for ``LegalizeOps``, by operator."""
    return {
        "relax.exp": _legalized("relax.exp", topi.fast_exp, lambda _: ()),
        "relax.erf": _legalized("relax.erf", topi.fast_erf, lambda _: ()),
        "relax.tanh": _legalized("relax.tanh", topi.fast_tanh, lambda _: ()),
    }
