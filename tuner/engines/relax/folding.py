"""Constants computed by numpy instead of by functions that are compiled for one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

_PURE: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.negative": np.negative,
    "relax.divide": np.divide,
    "relax.sqrt": np.sqrt,
    "relax.isnan": np.isnan,
    "relax.where": np.where,
}


def fold(module: Any) -> Any:
    """Compute what depends on constants alone, for the operators that importing and layouts put around weights.

    ``FoldConstant`` compiles each of them with LLVM, some 60 ms apiece: 10 s for a network of 53 convolutions.
    """
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            module[variable] = _Folder().visit_expr(function)
    return relax.transform.CanonicalizeBindings()(module)


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if not isinstance(visited, relax.Call) or not isinstance(visited.op, tvm.ir.Op):
            return visited
        folded = _compute(visited.op.name, [self._resolved(argument) for argument in visited.args], visited.attrs)
        if folded is None:
            return visited
        # Of an array, relax.const would narrow 64 bits to 32.
        return relax.const(tvm.runtime.tensor(np.ascontiguousarray(folded).reshape(folded.shape)))

    def _resolved(self, argument: Any) -> Any:
        value = self.lookup_binding(argument) if isinstance(argument, relax.Var) else argument
        return argument if value is None else value


def _compute(name: str, arguments: list[Any], attributes: Any) -> Any | None:
    if not arguments or not isinstance(arguments[0], tvm.ir.GenericConst):
        return None
    first = arguments[0].value.numpy()
    if name == "relax.permute_dims":
        return first.transpose(attributes.axes and [int(axis) for axis in attributes.axes])
    if name == "relax.reshape" and isinstance(arguments[1], relax.ShapeExpr):
        return first.reshape([int(size) for size in arguments[1].values])
    if name == "relax.expand_dims":
        return np.expand_dims(first, tuple(int(axis) for axis in attributes.axis))
    if name == "relax.astype":
        return first.astype(str(attributes.dtype))
    if name in _PURE and all(isinstance(argument, tvm.ir.GenericConst) for argument in arguments):
        found = _PURE[name](*(argument.value.numpy() for argument in arguments))
        # Numpy divides integers into floats; TVM does not.
        return found if found.dtype in (first.dtype, np.bool_) or name == "relax.where" else None
    return None
