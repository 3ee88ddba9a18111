"""Memory layouts of convolutions and of the operators between them.

TVM's ``ConvertLayout`` propagates a layout from operator to operator. It inserts transposes around operators that have
no rule for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import tvm
from tvm import relax
from tvm_ffi import structural_equal

from tuner.engines.relax.graph import calls, shuffles, volumes

WANTED = {"NHWC": ["NHWC", "HWIO"], "NCHW": ["NCHW", "OIHW"]}
"""Layouts of data and weights, by the name that requests use."""
_TRANSPOSED = ["NCHW", "IOHW"]
"""The only layout in which TVM can compute transposed convolutions, though it would propagate others to them."""
_ELEMENTWISE = ("relax.clip", "relax.nn.leakyrelu", "relax.nn.softplus")
"""Element-wise operators for which TVM 0.27 has no rule."""
_TO_NHWC, _TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]
"""Axes of transpositions."""
_COMMUTATIVE = ("relax.add", "relax.multiply", "relax.maximum", "relax.minimum")
_BROADCASTING = (*_COMMUTATIVE, "relax.subtract", "relax.divide", "relax.power")


def convert(module: Any, layout: str) -> Any:
    """Convert the layout of convolutions, unless an operator between them does not support it."""
    _add_rules()
    if layout == "NHWC":
        module = volumes.find(shuffles.find(module))
    module = _with_tail(calls.mutate(module, _Ordered))
    try:
        wanted = {calls.CONVOLUTION: WANTED[layout], "relax.nn.conv2d_transpose": _TRANSPOSED}
        converted = _in_one_block(relax.transform.ConvertLayout(wanted)(module))
    except Exception as error:  # noqa: BLE001 - operators raise anything; each build of the model meets the same
        logging.getLogger(__name__).warning("convolutions keep the model's layout: %s", str(error)[-300:])
        return _in_one_block(module)
    return relax.transform.DeadCodeElimination()(calls.mutate(converted, _Hoisting)) if layout == "NHWC" else converted


def _with_tail(module: Any) -> Any:
    """Move what has sizes that depend on data out of the dataflow block of ``main``, in place.

    ``ConvertLayout`` fails at it, and leaves what lies outside of such a block alone.
    """
    main = module["main"]
    if len(main.body.blocks) != 1:
        return module
    head: list[Any] = []
    tail: list[Any] = []
    moved: dict[Any, Any] = {}
    for binding in main.body.blocks[0].bindings:
        is_open = not _has_known_sizes(binding.var.ty) or any(each in moved for each in _read(binding))
        (tail if is_open else head).append(binding)
        if is_open:
            moved[binding.var] = relax.Var(binding.var.name, binding.var.ty)
    if not tail:
        return module
    own = {*moved, *main.params}
    passed = {each: relax.Var(each.name, each.ty) for binding in tail for each in _read(binding) if each not in own}
    renamed = _Renamed({**moved, **passed})
    blocks = [
        relax.DataflowBlock([*head, *(relax.VarBinding(new, old) for old, new in passed.items())]),
        relax.BindingBlock([renamed.binding(each) for each in tail]),
    ]
    body = relax.SeqExpr(blocks, renamed.visit_expr(main.body.body))
    module["main"] = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return module


def _in_one_block(module: Any) -> Any:
    """Undo what ``_with_tail`` did: operators are fused in dataflow blocks alone."""
    has_tail = len(module["main"].body.blocks) > 1
    return relax.transform.ConvertToDataflow()(module) if has_tail else module


def _has_known_sizes(type_: Any) -> bool:
    if isinstance(type_, tvm.ir.TupleType):
        return all(map(_has_known_sizes, type_.fields))
    return not isinstance(type_, relax.TensorType) or calls.sizes_of(type_) is not None


def _read(binding: Any) -> list[Any]:
    return list(relax.analysis.free_vars(binding.value))


@relax.expr_functor.mutator
class _Renamed(relax.PyExprMutator):
    """Put other variables in the place of some."""

    def __init__(self, renamed: Mapping[Any, Any]) -> None:
        super().__init__()
        self._renamed = renamed

    def visit_var_(self, var: Any) -> Any:
        return self._renamed.get(var, var)

    def visit_dataflow_var_(self, var: Any) -> Any:
        return self._renamed.get(var, var)

    def binding(self, binding: Any) -> Any:
        var, value = self._renamed[binding.var], self.visit_expr(binding.value)
        if isinstance(binding, relax.MatchCast):
            return relax.MatchCast(var, value, binding.ty)
        return relax.VarBinding(var, value)


@cache
def _add_rules() -> None:
    rule = tvm.ir.Op.get("relax.nn.relu").get_attr(calls.LAYOUT_RULE)
    for name in _ELEMENTWISE:
        tvm.ir.register_op_attr(name, calls.LAYOUT_RULE, rule)


@relax.expr_functor.mutator
class _Ordered(relax.PyExprMutator):
    """Put the operand that has the convolutions' layout first: TVM computes sums and products in the first one's.

    Constants get all axes: TVM would transpose a tensor before and after an operation with one of fewer.
    """

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._held = calls.in_layout(function)

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if calls.operator(call) in _BROADCASTING:
            visited = relax.Call(visited.op, [_with_axes(each, call.ty.ndim) for each in visited.args], visited.attrs)
        if calls.operator(call) not in _COMMUTATIVE:
            return visited
        first, second = call.args
        may_be_transposed = isinstance(first, tvm.ir.GenericConst) or structural_equal(first.ty, second.ty)
        if second not in self._held or first in self._held or not may_be_transposed:
            return visited
        return relax.Call(visited.op, [visited.args[1], visited.args[0]], visited.attrs)


def _with_axes(operand: Any, rank: int) -> Any:
    """Return an operand, reshaped to as many axes as the result has if it is a constant array."""
    array = calls.constant(operand)
    if array is None or rank != len(_TO_NHWC) or not 0 < array.ndim < rank:
        return operand
    return relax.const(array.reshape(*[1] * (rank - array.ndim), *array.shape), operand.ty.dtype)


@relax.expr_functor.mutator
class _Hoisting(relax.PyExprMutator):
    """Join tensors in NHWC if one of them is: ``ConvertLayout`` joins them in the layout of the first one."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._values = {each.var: each.value for each in calls.bindings(function)}
        self._uses = calls.uses(function)

    def visit_call_(self, call: Any) -> Any:
        if not _permutes(call, _TO_NHWC) or not self._is_hoisted(call.args[0]):
            return self.visit_expr_post_order(call)
        return self._in_nhwc(call.args[0])

    def _is_hoisted(self, variable: Any) -> bool:
        value = self._values.get(variable)
        if self._uses[variable] > 1:
            return False
        if calls.operator(value) == calls.NEIGHBOURS:
            return True
        return any(_permutes(self._values.get(each), _TO_NCHW) for each in self._joined(value))

    def _joined(self, value: Any) -> Sequence[Any]:
        """Return the variables that a value joins along the channels of NCHW; empty for other values."""
        if calls.operator(value) != "relax.concat" or int(value.attrs.axis or 0) != 1 or value.ty.ndim != len(_TO_NHWC):
            return ()
        parts = self._values.get(value.args[0], value.args[0])
        return parts.fields if isinstance(parts, relax.Tuple) else ()

    def _in_nhwc(self, variable: Any) -> Any:
        value: Any = self._values.get(variable)
        if _permutes(value, _TO_NCHW):
            return self.visit_expr(value.args[0])
        if not self._is_hoisted(variable):
            return relax.op.permute_dims(self.visit_expr(variable), _TO_NHWC)
        if calls.operator(value) == calls.NEIGHBOURS:
            data, table = value.args
            taps = relax.const(table.value.numpy().transpose(_TO_NHWC))
            return relax.Call(value.op, [self.builder_.emit(self._in_nhwc(data)), taps])
        return relax.op.concat([self.builder_.emit(self._in_nhwc(each)) for each in self._joined(value)], axis=3)


def _permutes(value: Any, axes: list[int]) -> bool:
    return (
        calls.operator(value) == "relax.permute_dims"
        and value.attrs.axes is not None
        and [int(axis) for axis in value.attrs.axes] == axes
    )
