"""Whether padding channels saves more than it costs."""

from __future__ import annotations

_MOST_WASTE = 0.2
"""Added channels as a share of the real ones: 40 may become 48, but 24 no 32."""
_PARTLY_FILLED = 0.95
"""Speed of blocks beside the share of lanes that they fill: blocks of 15 lose a tenth, not a sixteenth."""
_HALF_VECTORS = 0.95
"""Speed with half a vector's lanes: full where a CPU splits vectors anyway (measured), half where it does not."""
_DEPTHWISE = 3.0
"""Time of a depthwise convolution's operation, which loads as much as it computes, in those of a plain one's."""
_DEPTHWISE_PART = 0.6
"""Speed of depthwise convolutions in partly filled vectors: 0.51 to 0.72 measured, with blocks of 10, 11, 13 and 15."""
_MOST_COLUMNS = 1 / 3
_COLUMNS_PART = 0.3
"""Speed of dense layers in tiles that are no whole vectors: 0.05 to 0.4 measured, with tiles of 24 to 30."""
SLICED = 60.0
"""Time of copying an element, in operations of convolutions: 0.5 ns at 120 GFLOPS."""
TAKEN = 4 * SLICED
"""Of gathering one."""


def padded(channels: int, lanes: int) -> int | None:
    """The whole number of vectors that ``channels`` would become; None: they are, or too few to be worth it."""
    whole = -(-channels // lanes) * lanes
    added = whole - channels
    return whole if 0 < added <= _MOST_WASTE * channels else None


def speed(channels: int, lanes: int) -> float:
    """Of computing so many channels in blocks of their largest divisor that fits ``lanes``; 1 is that of vectors."""
    block = max(size for size in range(1, lanes + 1) if channels % size == 0)
    if block in (lanes, lanes // 2):
        return 1.0 if block == lanes else _HALF_VECTORS
    return _PARTLY_FILLED * block / lanes


def made(operations: float, channels: int, whole: int, lanes: int) -> float:
    """Operations' worth of time that computing ``whole`` in place of ``channels`` outputs saves; negative: costs."""
    return operations * (1 / speed(channels, lanes) - whole / channels)


def made_depthwise(operations: float, channels: int, whole: int, lanes: int) -> float:
    """As ``made``, of a depthwise convolution."""
    speed_before = min(speed(channels, lanes), _DEPTHWISE_PART) if speed(channels, lanes) < _HALF_VECTORS else 1.0
    return _DEPTHWISE * operations * (1 / speed_before - whole / channels)


def padded_columns(columns: int, lanes: int) -> int | None:
    """As ``padded``, of a dense layer's outputs, whose tiles are two vectors wide."""
    whole = -(-columns // (2 * lanes)) * 2 * lanes
    is_narrow = columns in (lanes // 2, lanes)
    return whole if not is_narrow and 0 < whole - columns <= _MOST_COLUMNS * columns else None


def made_columns(operations: float, columns: int, whole: int) -> float:
    """As ``made``, of a dense layer whose tiles are no whole vectors."""
    return operations * (1 / _COLUMNS_PART - whole / columns)


def read(operations: float, channels: int, whole: int) -> float:
    """The same of reducing over ``whole`` in place of ``channels`` inputs, which blocks do not matter for."""
    return operations * (1 - whole / channels)
