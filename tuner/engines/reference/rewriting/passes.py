"""The rewritings there are, in the order in which they are tried: what an earlier one makes, a later one may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from tuner.engines.reference.rewriting import groups, lines, transposed
from tuner.engines.reference.rewriting.aligned import padding


@dataclass(frozen=True, kw_only=True)
class Pass:
    name: str
    """What the engine's answer calls it."""
    apply: Callable[[onnx.ModelProto, int], int]
    """Edits a model in place and returns how many places it changed.

    It is given the 32-bit lanes of the target's vectors. The model has static inputs, all its constants are
    initializers, and it has no ``value_info``; ``graphs.shapes`` knows the shapes. Inputs and outputs keep
    their names, types and shapes. It must leave subgraphs, and what it does not know, as they are.
    """


PASSES: tuple[Pass, ...] = (
    Pass(name="lines", apply=lines.apply),
    Pass(name="groups", apply=groups.apply),
    Pass(name="transposed", apply=transposed.apply),
    Pass(name="aligned", apply=padding.apply),
)  # fmt: skip
"""First 1-D convolutions, then groups, then transposed convolutions; channels are padded last."""
