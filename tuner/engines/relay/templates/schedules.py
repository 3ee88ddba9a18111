"""What the schedules of our templates have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te
from tvm.topi.utils import traverse_inline


def of_tagged(outs: Any, tag: str, plan: Callable[[Any, Any, Any], None]) -> Any:
    """A ``te.Schedule`` of ``outs``, whose elementwise operators are inlined up to the last.

    ``plan(schedule, op, out)`` schedules the one operator with this tag, together with the last output.
    """
    outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
    schedule = te.create_schedule([each.op for each in outs])

    def visit(op: Any) -> None:
        if op.tag == tag:
            plan(schedule, op, outs[0])

    traverse_inline(schedule, outs[0].op, visit)
    return schedule
