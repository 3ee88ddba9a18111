"""Calls of operators in Relax functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import tvm
from tvm import relax, tirx

CONVOLUTION, MATRIX_PRODUCT = "relax.nn.conv2d", "relax.matmul"
REARRANGED = "tunesmith.rearranged"
"""Our own operator that rearranges a tensor along one axis (``shuffles``)."""
NEIGHBOURS = "tunesmith.neighbours"
"""Our own operator that joins neighbouring planes of a volume (``volumes``)."""
LAYOUT_RULE = "FRelaxInferLayout"
"""Attribute of operators that ``ConvertLayout`` knows how to compute in other layouts."""
FUSES_ELEMENTWISE = 4
"""Value of the attribute ``op_pattern`` of functions into which FuseOps fuses the element-wise operators that follow
(``kOutEWiseFusable``)."""
_PAD, _POOL = "relax.nn.pad", "relax.nn.max_pool2d"
_MOVING = ("relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze", REARRANGED, _PAD, _POOL)
"""Operators that move or select numbers, or add zeros."""

Bindings = Mapping[Any, Any]
"""Values of variables."""


def operator(value: Any) -> str:
    """Return the name of the operator that an expression calls; empty if it calls none."""
    return str(value.op.name) if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) else ""


def bindings(function: Any) -> list[Any]:
    """Return the bindings of a Relax function, in order."""
    return [each for block in function.body.blocks for each in block.bindings]


def register(name: str, second: str, result: Callable[[Any], Any]) -> None:
    """Register an operator of ``data`` and a constant called ``second``, 4-D both, with the layout rule of sums.

    Where the data are transposed, so is the constant. ``result`` returns the type of a call, given their shapes alone.
    """
    tvm.ir.register_op_attr(name, "FInferType", lambda call, _: result(call))
    tvm.ir.register_op_attr(name, LAYOUT_RULE, tvm.ir.Op.get("relax.add").get_attr(LAYOUT_RULE))
    tvm.ir.register_op_attr(name, "FPurity", True)
    operator = tvm.ir.Op.get(name)
    operator.set_num_inputs(2)
    operator.add_argument("data", "Tensor", "")
    operator.add_argument(second, "Tensor", "")


@cache
def has_layout_rule(name: str) -> bool:
    """Return whether ``ConvertLayout`` knows how an operator passes a layout on."""
    return bool(tvm.ir.Op.get(name).get_attr(LAYOUT_RULE))


def in_layout(function: Any, *passing: str) -> set[Any]:
    """Return the variables that keep the layout of a convolution before them.

    ``passing``: operators that pass it on although they have no rule for it.
    """
    held: set[Any] = set()
    for binding in bindings(function):
        value, name = binding.value, operator(binding.value)
        is_passed = name in passing or (name and has_layout_rule(name))
        given = value.args[:2] if is_passed else [value]
        if name == CONVOLUTION or any(each in held for one in given for each in _parts(one)):
            held.add(binding.var)
    return held


def _parts(value: Any) -> Sequence[Any]:
    """Return the fields of a tuple, the tuple of an item, or the value itself."""
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    return [value.tuple_value] if isinstance(value, relax.TupleGetItem) else [value]


def uses(function: Any) -> Counter[Any]:
    """Return how many bindings of a Relax function use each variable; its result counts as one more."""
    found: Counter[Any] = Counter()
    for value in [*(each.value for each in bindings(function)), function.body.body]:
        relax.analysis.post_order_visit(value, lambda used: found.update([used] if isinstance(used, relax.Var) else []))
    return found


def constant(value: Any) -> Any | None:
    """Return the array of a constant; None for other expressions."""
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


def sizes(value: Any) -> list[int] | None:
    """Return the shape of a tensor; None unless all of its sizes are known."""
    return sizes_of(value.ty)


def sizes_of(type_: Any) -> list[int] | None:
    """Return the shape in a tensor's type; None unless all of its sizes are known."""
    shape = type_.shape
    is_known = isinstance(shape, relax.ShapeExpr) and all(isinstance(size, tirx.IntImm) for size in shape.values)
    return [int(size) for size in shape.values] if is_known else None


def is_image_convolution(value: Any, *, layout: str = "NHWC") -> bool:
    """Return whether an expression is a convolution in float32, by constants in HWIO to NHWC, without dilation.

    ``layout``: that of its input.
    """
    if operator(value) != CONVOLUTION:
        return False
    (data, kernel), attrs = value.args, value.attrs
    return (
        (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) == (layout, "HWIO", "NHWC")
        and isinstance(kernel, tvm.ir.GenericConst)
        and {str(each.ty.dtype) for each in (data, kernel, value)} == {"float32"}
        and all(int(each) == 1 for each in attrs.dilation)
    )


def origin(variable: Any, values: Bindings) -> Any:
    """Return the value of a variable, or that from which operators moved numbers there."""
    value: Any = values.get(variable)
    while operator(value) in _MOVING and (operator(value) != _PAD or not value.attrs.pad_value):
        value = values.get(value.args[0])
    return value


def branches(module: Any) -> bool:
    """Return whether a Relax function of ``module`` has control flow."""
    return any(
        isinstance(binding.value, relax.If)
        for _, function in module.functions_items()
        if isinstance(function, relax.Function)
        for binding in bindings(function)
    )


def mutate(module: Any, mutator: Callable[[Any], Any]) -> Any:
    """Rewrite each Relax function of ``module`` in place with a ``PyExprMutator``, which ``mutator`` returns for it."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            module[variable] = mutator(function).visit_expr(function)
    return module


def legalized(name: str, *ours: Callable[[Any, Any], Any | None]) -> Callable[[Any, Any], Any]:
    """Return a function for ``LegalizeOps``: the first of ``ours`` that does not return None, else TVM's own.

    TVM's own also for other dtypes than float32.
    """
    usual = tvm.ir.Op.get(name).get_attr("FLegalize")

    def legalize(builder: Any, call: Any) -> Any:
        candidates = ours if call.args[0].ty.dtype == "float32" else ()
        made = (candidate(builder, call) for candidate in candidates)
        found = next((each for each in made if each is not None), None)
        return usual(builder, call) if found is None else found

    return legalize
