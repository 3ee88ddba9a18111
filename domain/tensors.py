"""Shapes and element types of a network's inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Dimension = int | str | None
"""A size, the name of a symbolic dimension, or None for an unnamed dynamic one."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    name: str
    dtype: str
    """numpy name: ``float32``, ``int64``, …"""
    shape: tuple[Dimension, ...]


def specs(entries: Iterable[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """Of mappings with ``name``, ``dtype`` and ``shape``, as engines and stages write them."""
    return tuple(TensorSpec(name=entry["name"], dtype=entry["dtype"], shape=tuple(entry["shape"])) for entry in entries)
