"""Sizes, steps and counts that operators are given: onnx and ONNX Runtime divide by some, and multiply others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tuner.engines.reference.vetting.refusal import refuse, shown

_POSITIVE = frozenset(
    (
        *("kernel_shape", "strides", "dilations", "group", "offset_group"),
        *("blocksize", "num_groups", "num_outputs", "hidden_size"),
        *("pooled_shape", "output_height", "output_width"),
    )
)
"""Attributes of standard operators of which no operator has a use for zero or less."""
_MOST = 2**31 - 1
"""The square of it still fits into 64 bits."""
_STANDARD = ("", "ai.onnx")


def check(nodes: Iterable[Any]) -> None:
    """Raises EngineFailure ``invalid_model``: ``attribute``."""
    for node in nodes:
        if node.domain in _STANDARD:
            for attribute in node.attribute:
                # In a function's body it may stand for what the caller gives, and has no value of its own.
                if attribute.name in _POSITIVE and not attribute.ref_attr_name:
                    _check(node, attribute)


def _check(node: Any, attribute: Any) -> None:
    values = [*([attribute.i] if attribute.type == attribute.INT else []), *attribute.ints]
    if all(1 <= value <= _MOST for value in values):
        return
    said = (
        f"{shown(node.op_type)} {shown(node.name)} has {attribute.name} {values[0] if len(values) == 1 else values[:8]}"
    )
    raise refuse("attribute", f"{said}; from 1 to {_MOST} is allowed")
