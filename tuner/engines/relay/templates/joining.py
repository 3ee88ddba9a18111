"""Concatenation of tensors that are computed from one another, in one function.

TVM's concatenation for CPUs is an external operation, whose operands lie whole in memory. If one operand is also what
others are slices of, TVM computes a part of it only and fails: "Cannot bind a compact buffer".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import topi
from tvm.relay import op as relay_op
from tvm.relay.op.strategy import generic, x86


def install() -> None:
    """Use the general concatenation for such operands; idempotent."""
    generic.concatenate_strategy.register(["cpu"], _strategy, override=True)


def _strategy(attributes: Any, inputs: Sequence[Any], out_type: Any, target: Any) -> Any:
    if not _depend_on_each_other(inputs):
        return x86.concatenate_strategy_cpu(attributes, inputs, out_type, target)
    strategy = relay_op.OpStrategy()
    strategy.add_implementation(
        generic.wrap_compute_concat(topi.transform.concatenate),
        generic.wrap_topi_schedule(topi.x86.injective.schedule_concatenate),
        name="concatenate.generic",
    )
    return strategy


def _depend_on_each_other(tensors: Sequence[Any]) -> bool:
    wanted = [tensor.op for tensor in tensors]
    pending = [inner for operation in wanted for inner in operation.input_tensors]
    seen: list[Any] = []
    while pending:
        operation = pending.pop().op
        if any(operation.same_as(each) for each in seen):
            continue
        if operation.input_tensors and any(operation.same_as(each) for each in wanted):
            return True
        seen.append(operation)
        pending += operation.input_tensors
    return False
