"""Cost model that decides whether padding channels saves more than it costs."""

from __future__ import annotations

_MOST_WASTE = 0.2
"""Maximum ratio of added to real channels: 40 may become 48, but 24 not 32."""
_PARTLY_FILLED = 0.95
"""Speed of a block relative to its share of filled lanes: blocks of 15 lose a tenth, not a sixteenth."""
_HALF_VECTORS = 0.95
"""Speed with half-filled vectors: full on CPUs that split vectors anyway (measured), half on others."""
_DEPTHWISE = 3.0
"""Time per operation of a depthwise convolution, which loads as much as it computes, relative to a plain one."""
_DEPTHWISE_PART = 0.6
"""Speed of depthwise convolutions in partly filled vectors: 0.51 to 0.72 measured, with blocks of 10, 11, 13 and 15."""
_MOST_COLUMNS = 1 / 3
_COLUMNS_PART = 0.3
"""Speed of dense layers in tiles that are not whole vectors: 0.05 to 0.4 measured, with tiles of 24 to 30."""
SLICED = 60.0
"""Time to copy an element, in operations of convolutions: 0.5 ns at 120 GFLOPS."""
TAKEN = 4 * SLICED
"""Time to gather an element, in the same unit."""


def padded(channels: int, lanes: int) -> int | None:
    """Return ``channels`` rounded up to whole vectors; None if they are whole already or padding adds too many."""
    whole = -(-channels // lanes) * lanes
    added = whole - channels
    return whole if 0 < added <= _MOST_WASTE * channels else None


def speed(channels: int, lanes: int) -> float:
    """Return the speed, relative to whole vectors, of blocks of the channels' largest divisor up to ``lanes``."""
    block = max(size for size in range(1, lanes + 1) if channels % size == 0)
    if block in (lanes, lanes // 2):
        return 1.0 if block == lanes else _HALF_VECTORS
    return _PARTLY_FILLED * block / lanes


def made(operations: float, channels: int, whole: int, lanes: int) -> float:
    """Return the time saved by computing ``whole`` instead of ``channels`` outputs, in operations; negative if lost."""
    return operations * (1 / speed(channels, lanes) - whole / channels)


def made_depthwise(operations: float, channels: int, whole: int, lanes: int) -> float:
    """Return the same for a depthwise convolution."""
    speed_before = min(speed(channels, lanes), _DEPTHWISE_PART) if speed(channels, lanes) < _HALF_VECTORS else 1.0
    return _DEPTHWISE * operations * (1 / speed_before - whole / channels)


def padded_columns(columns: int, lanes: int) -> int | None:
    """Return a dense layer's outputs rounded up to its tiles, two vectors wide; None if padding does not pay off."""
    whole = -(-columns // (2 * lanes)) * 2 * lanes
    is_narrow = columns in (lanes // 2, lanes)
    return whole if not is_narrow and 0 < whole - columns <= _MOST_COLUMNS * columns else None


def made_columns(operations: float, columns: int, whole: int) -> float:
    """Return the same as ``made`` for a dense layer whose tiles are not whole vectors."""
    return operations * (1 / _COLUMNS_PART - whole / columns)


def read(operations: float, channels: int, whole: int) -> float:
    """Return the same for reducing over ``whole`` instead of ``channels`` inputs, for which blocks do not matter."""
    return operations * (1 - whole / channels)
