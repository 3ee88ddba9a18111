"""Dispatch of convolutions to our templates, hooked into TVM's strategies and layout alteration.

Every template supports convolutions in the model's layout, so that AutoTVM extracts them as tasks, and in the blocked
layout that ``alter`` converts them to. TVM's own strategies and layout hook still handle what no template supports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import autotvm, relay, te
from tvm.relay.op.strategy import generic as strategies
from tvm.relay.op.strategy import x86
from tvm.topi import nn
from tvm.topi.utils import traverse_inline
from tvm.topi.x86 import conv2d_alter_op

Offer = Callable[[Any, list[Any], Any, Any, Any], Any]
"""``offer(attrs, inputs, out_type, target, strategy)``: returns the ``OpStrategy`` to use instead of ``strategy``."""
Alter = Callable[[Any, list[Any], list[Any], Any, Any], Any]
"""``alter(attrs, inputs, tinfos, out_type, workload)``: returns the replacement call, or None for TVM's own."""


@dataclass(frozen=True, kw_only=True)
class Template:
    operators: tuple[str, ...]
    """Relay names of the operator and of its blocked form."""
    task: str
    """AutoTVM task name."""
    takes: Callable[[Any, list[Any]], bool]
    """``takes(attrs, tensors or their types)``: whether it may be offered. Called for every convolution: cheap."""
    offer: Offer
    alter: Alter
    usual: str | None = None
    """TVM's task of the same workload, if this one rounds differently, which limits it to builds with ``rewrite``."""


_templates: list[Template] = []
_PLANAR = "nn.conv2d"
_STRATEGIES: dict[str, tuple[Any, Callable[..., Any]]] = {
    _PLANAR: (strategies.conv2d_strategy, x86.conv2d_strategy_cpu),
    "nn.contrib_conv2d_NCHWc": (strategies.conv2d_NCHWc_strategy, x86.conv2d_NCHWc_strategy_cpu),
}


def add(template: Template) -> None:
    """Add a template; a second one of the same task is ignored."""
    if not _templates:
        _take_over()
    if all(known.task != template.task for known in _templates):
        _templates.append(template)


def is_allowed(task: str, *, rewrite: bool) -> bool:
    """Return whether a build may use the AutoTVM task of that name, ours or TVM's."""
    return rewrite or usual(task) == task


def usual(task: str) -> str:
    """Return the reference task for what the named one computes; usually the task itself."""
    return next((known.usual for known in _templates if known.task == task and known.usual), task)


def target() -> Any:
    """Return the current target."""
    return tvm.target.Target.current(allow_none=False)


def _take_over() -> None:
    for operator, (generic, own) in _STRATEGIES.items():
        generic.register("cpu", _strategy(operator, own), override=True)
    nn.conv2d_alter_layout.register("cpu", _alter, override=True)


def _fitting(operator: str, attrs: Any, tensors: list[Any]) -> list[Template]:
    return [each for each in _templates if operator in each.operators and each.takes(attrs, tensors)]


def _strategy(operator: str, own: Callable[..., Any]) -> Callable[..., Any]:
    def choose(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        strategy = own(attrs, inputs, out_type, target)
        for template in _fitting(operator, attrs, list(inputs)):
            strategy = template.offer(attrs, list(inputs), out_type, target, strategy)
        return strategy

    return choose


def _alter(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
    fitting = {each.task: each for each in _fitting(_PLANAR, attrs, list(tinfos))}
    if fitting and not isinstance(autotvm.task.DispatchContext.current, autotvm.task.ApplyGraphBest):
        chosen = relay.op.get(_PLANAR)
        _, outs = relay.backend.te_compiler.select_implementation(chosen, attrs, tinfos, out_type, target())
        workload = autotvm.task.get_workload(outs)
        if workload and workload[0] in fitting:
            altered = fitting[workload[0]].alter(attrs, list(inputs), list(tinfos), out_type, workload)
            if altered is not None:
                return altered
    return conv2d_alter_op._alter_conv2d_layout(attrs, inputs, tinfos, out_type)


def of_tagged(outs: Any, tag: str, plan: Callable[[Any, Any, Any], None]) -> Any:
    """Return a ``te.Schedule`` of ``outs``, whose elementwise operators are inlined up to the last.

    ``plan(schedule, op, out)`` schedules the operator with this tag, together with the last output.
    """
    outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
    schedule = te.create_schedule([each.op for each in outs])

    def visit(op: Any) -> None:
        if op.tag == tag:
            plan(schedule, op, outs[0])

    traverse_inline(schedule, outs[0].op, visit)
    return schedule
