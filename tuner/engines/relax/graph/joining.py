"""Calls of tensor functions, one after the other, made one function, which a schedule then computes part by part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

_CALL = "relax.call_tir"

Steps = Sequence[tuple[Any, int | None]]
"""Calls, and which argument of each is the result of the one before; None for the first."""


def calls_function(value: Any, name: re.Pattern[str]) -> bool:
    """Return whether an expression calls a tensor function whose name begins as the pattern says."""
    return is_call(value) and name.match(str(value.args[0].name_hint)) is not None


def is_call(value: Any) -> bool:
    """Return whether an expression calls a tensor function."""
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and str(value.op.name) == _CALL


def join(module: Any, found: Mapping[Any, Steps], name: Callable[[Steps], str]) -> Any:
    """Return an ``IRModule`` in which each call of ``found`` is one of a new function that computes all its steps.

    Nothing else uses the results of the others.
    """
    if not found:
        return module
    joining = _Joining(module, found, name)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            joining.builder_.update_func(variable, joining.builder_.normalize(joining.visit_expr(function)))
    passes = [relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(joining.builder_.get())


@relax.expr_functor.mutator
class _Joining(relax.PyExprMutator):
    def __init__(self, module: Any, found: Mapping[Any, Steps], name: Callable[[Steps], str]) -> None:
        super().__init__(module)
        self._found, self._name = found, name

    def visit_call_(self, call: Any) -> Any:
        steps = self._found.get(call)
        return self._joined(steps) if steps else self.visit_expr_post_order(call)

    def _joined(self, steps: Steps) -> Any:
        given: list[Any] = []
        parameters: list[Any] = []
        bindings: list[Any] = []
        for number, (call, place) in enumerate(steps):
            others = [each for at, each in enumerate(call.args[1].fields) if at != place]
            own = [relax.Var(f"given{number}_{at}", each.ty) for at, each in enumerate(others)]
            arguments = own if place is None else [*own[:place], bindings[-1].var, *own[place:]]
            is_last = number == len(steps) - 1
            result = relax.Var("result", call.ty) if is_last else relax.DataflowVar(f"step{number}", call.ty)
            bindings.append(relax.VarBinding(result, relax.call_tir(call.args[0], arguments, call.ty)))
            given += others
            parameters += own
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], bindings[-1].var)
        function = relax.Function(parameters, body, bindings[-1].var.ty).with_attr("Primitive", True)
        made = self.builder_.add_func(function, self._name(steps))
        return relax.Call(made, [self.visit_expr(each) for each in given])
