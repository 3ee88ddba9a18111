"""Cheaper operators: vectorized transcendental functions and separate kernels for channel shuffles.

Exponential, hyperbolic tangent and error function become TVM's own approximations (``topi.fast_exp``: Cephes'
polynomial; ``fast_tanh``, ``fast_erf``: Eigen's rational functions) instead of a libm call per element. Their measured
errors and gains are in docs/decisions/0019-cheaper-operators.md.

TVM fuses a channel shuffle with the layout transforms on both sides, and the result computes the position of every
element with divisions: 3 ns each. Fused only up to whole planes, padding included, the shuffle computes each plane's
position once: 0.4 ns.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay import dataflow_pattern as patterns
from tvm.relay.op import _make as approximations
from tvm.relay.op.nn import _make as nn_approximations

_DTYPE = "float32"
"""The only dtype rewritten; narrower numbers would lose more by rounding than is gained."""
_RECIPROCALS = (1e-30, 1e30)
"""Range of divisors whose reciprocals are normal numbers as well."""


def apply(module: Any) -> Any:
    """Return a ``tvm.IRModule`` whose float32 operators in ``main`` are replaced by cheaper ones."""
    return rewritten(relay.transform.InferType()(module), _Unary(), _ByConstant())


def rewritten(module: Any, *callbacks: patterns.DFPatternCallback) -> Any:
    """Return a ``tvm.IRModule`` with the callbacks' patterns in ``main`` replaced and types inferred."""
    main = patterns.rewrite(list(callbacks), module["main"], module)
    functions = {**dict(module.functions.items()), module.get_global_var("main"): main}
    return relay.transform.InferType()(tvm.IRModule(functions, module.type_definitions))


def _sigmoid(call: Any) -> Any:
    # Where x is below -88 the exponential is infinite and its reciprocal 0, as it should be.
    one = relay.const(1.0, _DTYPE)
    return one / (one + approximations.fast_exp(relay.negative(call.args[0])))


def _softmax(call: Any) -> Any:
    return nn_approximations.fast_softmax(call.args[0], call.attrs.axis)


def _local_response_norm(call: Any) -> Any:
    """Compute the sums over neighbouring channels as a pool along them: planes stay whole and vectorize."""
    attributes, data = call.attrs, call.args[0]
    shape = tuple(int(size) for size in relay.transform.InferTypeLocal(call).shape)
    size, beta = int(attributes.size), float(attributes.beta)
    if int(attributes.axis) != 1 or size % 2 == 0 or beta not in _POWERS:
        return call
    planes = relay.reshape(relay.multiply(data, data), (shape[0], 1, shape[1], -1))
    pooled = relay.nn.avg_pool2d(planes, (size, 1), padding=(size // 2, 0), count_include_pad=True)
    alpha, bias = relay.const(attributes.alpha, _DTYPE), relay.const(attributes.bias, _DTYPE)
    return data / _POWERS[beta](relay.reshape(bias + alpha * pooled, shape))


_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": lambda call: approximations.fast_exp(call.args[0]),
    "tanh": lambda call: approximations.fast_tanh(call.args[0]),
    "erf": lambda call: approximations.fast_erf(call.args[0]),
    "sigmoid": _sigmoid,
    "nn.softmax": _softmax,
    "nn.lrn": _local_response_norm,
}
_POWERS: dict[float, Callable[[Any], Any]] = {
    -1.0: lambda x: relay.const(1.0, _DTYPE) / x,
    -0.5: lambda x: relay.const(1.0, _DTYPE) / relay.sqrt(x),
    0.5: relay.sqrt,
    0.75: lambda x: relay.sqrt(x) * relay.sqrt(relay.sqrt(x)),
    1.0: lambda x: x,
    1.5: lambda x: x * relay.sqrt(x),
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
}


class _Unary(patterns.DFPatternCallback):
    def __init__(self) -> None:
        super().__init__(require_type=True, rewrite_once=True)
        self.pattern = any_of(_UNARY)(patterns.wildcard())

    def callback(self, pre: Any, post: Any, _: Any) -> Any:
        return _UNARY[post.op.name](post) if pre.checked_type.dtype == _DTYPE else post


class _ByConstant(patterns.DFPatternCallback):
    """Rewrites divisions by constants and powers with constant exponents."""

    def __init__(self) -> None:
        super().__init__(require_type=True, rewrite_once=True)
        self.pattern = any_of(("divide", "power"))(patterns.wildcard(), patterns.is_constant())

    def callback(self, pre: Any, post: Any, _: Any) -> Any:
        if pre.checked_type.dtype != _DTYPE:
            return post
        value, constant = post.args[0], post.args[1].data.numpy()
        if post.op.name == "divide":
            smallest, largest = _RECIPROCALS
            is_safe = np.all((np.abs(constant) >= smallest) & (np.abs(constant) <= largest))
            return value * relay.const((1 / constant).astype(_DTYPE)) if is_safe else post
        exponent = float(constant.flat[0]) if constant.size == 1 else None
        # An exponent with more dimensions than the base would add dimensions to the result.
        keeps_shape = tuple(pre.args[0].checked_type.shape) == tuple(pre.checked_type.shape)
        return _POWERS[exponent](value) if exponent in _POWERS and keeps_shape else post


def any_of(names: Iterable[str]) -> Any:
    """Return the pattern of operators with these names."""
    return functools.reduce(operator.or_, map(patterns.is_op, names))


_SWAPPED = (0, 2, 1, 3, 4)
"""Swaps groups and the channels in them; images stay as they are."""


def keep_apart(module: Any) -> Any:
    """Return a ``tvm.IRModule`` whose channel shuffles in ``main`` are not fused with what follows them."""
    return rewritten(module, _Shuffle(), _Filled())


class _Shuffle(patterns.DFPatternCallback):
    def __init__(self) -> None:
        super().__init__(rewrite_once=True)
        self._split = patterns.is_op("reshape")(patterns.wildcard())
        self._swapped = patterns.is_op("transpose")(self._split)
        self.pattern = patterns.is_op("reshape")(self._swapped)

    def callback(self, _: Any, post: Any, found: Any) -> Any:
        [swapped] = found[self._swapped]
        axes = tuple(int(axis) for axis in swapped.attrs.axes or ())
        return relay.annotation.stop_fusion(post) if axes == _SWAPPED else post


class _Filled(patterns.DFPatternCallback):
    """Moves zero padding of each group's channels into the shuffle before it."""

    def __init__(self) -> None:
        super().__init__(rewrite_once=True)
        self._shuffled = patterns.wildcard()
        apart = patterns.is_op("annotation.stop_fusion")(self._shuffled)
        self._split = patterns.is_op("reshape")(apart)
        self._filled = patterns.is_op("nn.pad")(self._split, patterns.is_constant())
        self.pattern = patterns.is_op("reshape")(self._filled)

    def callback(self, _: Any, post: Any, found: Any) -> Any:
        [shuffled], [split], [filled] = (found[each] for each in (self._shuffled, self._split, self._filled))
        inner = relay.Call(split.op, [shuffled], split.attrs)
        outer = relay.Call(filled.op, [inner, filled.args[1]], filled.attrs)
        return relay.annotation.stop_fusion(relay.Call(post.op, [outer], post.attrs))
