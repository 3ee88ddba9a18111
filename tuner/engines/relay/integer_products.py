"""Products of integers in quantized networks (QDQ), each with its own conversions.

A product whose operands both come from DequantizeLinear becomes one of bytes with sums in int32, which are dequantized;
TVM fuses that with what follows, as far as the next QuantizeLinear. What stands between products is computed in
float32. TVM's ``FakeQuantizationToInteger`` also computes that in integers, by products of 64 bits, refuses scales of
channels where branches meet, and leaves products in float32 that no QuantizeLinear follows.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay
from tvm.ir import TensorAffineType
from tvm.relay import dataflow_pattern as patterns

from tuner.engines.relay import fast_math

_OVER_DEFAULT = 11
"""Level of a registration that replaces TVM's own, which has 10."""
_RULE = "FTVMFakeQuantizationToInteger"
"""Attribute of an operator: the function that returns its integer form."""
_PRODUCTS = ("nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.batch_matmul")
_VIEWS = ("reshape", "squeeze", "expand_dims", "transpose")
"""Operators that the importer puts between kernels and their scales."""


def convert(module: Any) -> Any:
    """Return a ``tvm.IRModule`` with products of integers where ``main`` has products of dequantized ones."""
    typed = fast_math.rewritten(relay.transform.InferType()(module), _Units())
    main = _Products().visit(typed["main"])
    functions = {**dict(typed.functions.items()), typed.get_global_var("main"): main}
    return relay.transform.InferType()(tvm.IRModule(functions, typed.type_definitions))


class _Units(patterns.DFPatternCallback):
    """Sets the units of dense products, without which their integer form has no type."""

    def __init__(self) -> None:
        super().__init__(require_type=True, rewrite_once=True)
        self.pattern = patterns.is_op("nn.dense")(patterns.wildcard(), patterns.wildcard())

    def callback(self, pre: Any, post: Any, _: Any) -> Any:
        if post.attrs.units is not None:
            return post
        return relay.nn.dense(*post.args, units=pre.checked_type.shape[-1], out_dtype=post.attrs.out_dtype)


class _Products(relay.ExprMutator):
    def visit_call(self, call: Any) -> Any:
        made = super().visit_call(call)
        if not _is(made, *_PRODUCTS):
            return made
        operands = [_integer(operand) for operand in made.args]
        if None in operands:
            return made
        sums, kind = _by_rule(made, operands)
        return relay.qnn.op.dequantize(sums, kind.scale, kind.zero_point, axis=kind.axis)


def _integer(expr: Any) -> tuple[Any, Any] | None:
    """Return the integers that an expression dequantizes, and their ``TensorAffineType``; None if it does not."""
    if _is(expr, "qnn.dequantize"):
        given, scale, zero_point = expr.args
        dtype = relay.transform.InferTypeLocal(given).dtype
        return given, TensorAffineType(scale, _plain(zero_point), dtype, int(expr.attrs.axis))
    if not _is(expr, *_VIEWS):
        return None
    operand = _integer(expr.args[0])
    return operand and _by_rule(expr, [operand])


def _plain(zero_point: Any) -> Any:
    """Return one zero instead of a zero for each channel, whose products with the data TVM would compute."""
    is_zero = isinstance(zero_point, relay.Constant) and not zero_point.data.numpy().any()
    return relay.const(0, "int32") if is_zero else zero_point


def _by_rule(call: Any, operands: list[Any]) -> Any:
    """Apply TVM's rule for the operator to integer operands."""
    of_integers = relay.Call(call.op, [given for given, _ in operands], call.attrs)
    return call.op.get_attr(_RULE)(of_integers, dict(operands))


def _is(expr: Any, *names: str) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name in names


def _reshaped(expr: Any, types: Any) -> list[Any]:
    """Convert a reshape as TVM does, but keep the axis of the scales if the number of dimensions changes."""
    [given] = expr.args
    kind = types[given]
    before, after = (tuple(relay.transform.InferTypeLocal(each).shape) for each in (given, expr))
    if int(kind.axis) in (-1, len(before) - 1) and before[-1] == after[-1]:
        kind = TensorAffineType(kind.scale, kind.zero_point, kind.dtype, len(after) - 1)
    return [expr, kind]


tvm.ir.register_op_attr("reshape", _RULE, _reshaped, _OVER_DEFAULT)
