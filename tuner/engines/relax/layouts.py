"""Memory layouts of convolutions and of the operators between them.

TVM's ``ConvertLayout`` propagates a layout from operator to operator. It inserts transposes around operators that have
no rule for it.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import tvm
from tvm import relax
from tvm_ffi import structural_equal

from tuner.engines.relax import calls, shuffles

WANTED = {"NHWC": ["NHWC", "HWIO"], "NCHW": ["NCHW", "OIHW"]}
"""Layouts of data and weights, by the name that requests use."""
_TRANSPOSED = ["NCHW", "IOHW"]
"""The only layout in which TVM can compute transposed convolutions, though it would propagate others to them."""
_RULE = "FRelaxInferLayout"
_ELEMENTWISE = ("relax.clip", "relax.nn.leakyrelu", "relax.nn.softplus")
"""Element-wise operators for which TVM 0.27 has no rule."""
_COMMUTATIVE = ("relax.add", "relax.multiply", "relax.maximum", "relax.minimum")


def convert(module: Any, layout: str) -> Any:
    """Convert the layout of convolutions, unless an operator between them does not support it."""
    _add_rules()
    if layout == "NHWC":
        module = shuffles.find(module)
    module = calls.mutate(module, _Ordered)
    try:
        wanted = {calls.CONVOLUTION: WANTED[layout], "relax.nn.conv2d_transpose": _TRANSPOSED}
        return relax.transform.ConvertLayout(wanted)(module)
    except Exception as error:  # noqa: BLE001 - operators raise anything; each build of the model meets the same
        logging.getLogger(__name__).warning("convolutions keep the model's layout: %s", str(error)[-300:])
        return module


@cache
def _add_rules() -> None:
    rule = tvm.ir.Op.get("relax.nn.relu").get_attr(_RULE)
    for name in _ELEMENTWISE:
        tvm.ir.register_op_attr(name, _RULE, rule)


@cache
def _has_rule(name: str) -> bool:
    return bool(tvm.ir.Op.get(name).get_attr(_RULE))


@relax.expr_functor.mutator
class _Ordered(relax.PyExprMutator):
    """Put the operand that has the convolutions' layout first: TVM computes sums and products in the first one's."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._held: set[Any] = set()
        for binding in calls.bindings(function):
            if self._holds(binding.value):
                self._held.add(binding.var)

    def _holds(self, value: Any) -> bool:
        """Return whether a result keeps the layout of a convolution before it."""
        name = calls.operator(value)
        if name == calls.CONVOLUTION:
            return True
        return bool(name) and _has_rule(name) and any(each in self._held for each in value.args[:2])

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if calls.operator(call) not in _COMMUTATIVE:
            return visited
        first, second = call.args
        may_be_transposed = isinstance(first, tvm.ir.GenericConst) or structural_equal(first.ty, second.ty)
        if second not in self._held or first in self._held or not may_be_transposed:
            return visited
        return relax.Call(visited.op, [visited.args[1], visited.args[0]], visited.attrs)
