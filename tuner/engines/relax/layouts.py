"""Layouts of convolutions, and of the operators between them.

TVM's ``ConvertLayout`` carries a layout from operator to operator and puts transposes where one has no rule for it.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import tvm
from tvm import relax
from tvm_ffi import structural_equal

WANTED = {"NHWC": ["NHWC", "HWIO"], "NCHW": ["NCHW", "OIHW"]}
"""Of data and weights, by the name in requests."""
_TRANSPOSED = ["NCHW", "IOHW"]
"""The only layout in which TVM can compute transposed convolutions, though it would propagate others to them."""
_RULE = "FRelaxInferLayout"
_ELEMENTWISE = ("relax.clip", "relax.nn.leakyrelu", "relax.nn.softplus")
"""Operators of one tensor for which TVM 0.27 has no rule."""
_COMMUTATIVE = ("relax.add", "relax.multiply", "relax.maximum", "relax.minimum")
_CONVOLUTION = "relax.nn.conv2d"


def convert(module: Any, layout: str) -> Any:
    """Convert the layout of convolutions, unless an operator between them does not support it."""
    _add_rules()
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            module[variable] = _Ordered(function).visit_expr(function)
    try:
        wanted = {_CONVOLUTION: WANTED[layout], "relax.nn.conv2d_transpose": _TRANSPOSED}
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
    """Puts an operand with the convolutions' layout first, as TVM computes sums and products in that of the first."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._held: set[Any] = set()
        for block in function.body.blocks:
            for binding in block.bindings:
                if self._holds(binding.value):
                    self._held.add(binding.var)

    def _holds(self, value: Any) -> bool:
        """Return whether a result has the layout of a convolution that it was computed from."""
        name = _name(value)
        if name == _CONVOLUTION:
            return True
        return bool(name) and _has_rule(name) and any(each in self._held for each in value.args[:2])

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if _name(call) not in _COMMUTATIVE:
            return visited
        first, second = call.args
        is_turned = isinstance(first, tvm.ir.GenericConst) or structural_equal(first.ty, second.ty)
        if second not in self._held or first in self._held or not is_turned:
            return visited
        return relax.Call(visited.op, [visited.args[1], visited.args[0]], visited.attrs)


def _name(value: Any) -> str:
    return value.op.name if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) else ""
