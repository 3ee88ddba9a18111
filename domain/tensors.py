"""Shapes and element types of a network's inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

Dimension = int | str | None
"""A size, the name of a symbolic dimension, or None for an unnamed dynamic one."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    name: str
    dtype: str
    """numpy name: ``float32``, ``int64``, …"""
    shape: tuple[Dimension, ...]
