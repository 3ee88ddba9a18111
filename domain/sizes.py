"""Sizes: the sets of input shapes that one job compiles a model for, each an entry point of its bundle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Size:
    """One entry point."""

    name: str
    """The value of every dimension that varies, such as ``batch=1, sequence=16``."""
    values: dict[str, int]
    """Those values by the dimension's name: its symbolic name in the model, else ``INPUT.AXIS``."""
    input_shapes: dict[str, tuple[int, ...]]
    """As in ``JobRequest``, with all sizes known."""
    share: float
    """Of the budget, and of the runs that the user expects; the shares of all sizes add up to 1."""
