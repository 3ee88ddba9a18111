"""Sizes of a convolution by minimal filtering, and the ways to cut it into tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.topi.nn.utils import get_pad_tuple

from tuner.engines.relay.templates import interpolation
from tuner.engines.relay.templates.interpolation import Filtering

_MOST_REGISTERS = 16
"""Tiles whose sums are in registers: TVM keeps 1 kB on the stack, from where LLVM takes it into registers, and twice as
many ran at half the speed."""
_FEWEST_REGISTERS = 4
"""With fewer the multipliers wait for sums."""
_MOST_TILES = 64
"""In a block."""
_MOST_WAYS = 12
"""To cut an image into tiles of one size; narrow images have many."""
_MOST_WASTE = 1.34
"""Tiles computed for one that is wanted."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of a convolution: NCHW."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    taps: tuple[int, int]
    top: int
    left: int
    rows: int
    columns: int
    """Of the output."""

    @classmethod
    def of(cls, data: Sequence[int], filters: int, taps: tuple[int, int], padding: Any) -> Shape:
        batch, channels, height, width = data
        top, left, bottom, right = get_pad_tuple(padding, taps)
        return cls(
            batch=batch,
            channels=channels,
            height=height,
            width=width,
            filters=filters,
            taps=taps,
            top=int(top),
            left=int(left),
            rows=height + int(top + bottom) - taps[0] + 1,
            columns=width + int(left + right) - taps[1] + 1,
        )

    @property
    def flop(self) -> int:
        """Of the direct convolution."""
        return 2 * self.batch * self.filters * self.rows * self.columns * self.channels * self.taps[0] * self.taps[1]


@dataclass(frozen=True, kw_only=True)
class Tiling:
    down: Filtering
    across: Filtering
    block: int
    """Rows of tiles that are computed together."""
    registers: int
    """Tiles of a block that are multiplied at once."""
    rows: int
    """Of tiles of an image, a multiple of ``block``."""
    columns: int
    """Of tiles: enough that ``registers`` divide a block."""

    @classmethod
    def of(cls, sizes: Sequence[int], shape: Shape) -> Tiling:
        outputs, block, registers = (int(size) for size in sizes[1:])
        down, across = (interpolation.along(outputs, taps) for taps in shape.taps)
        step = registers // math.gcd(block, registers)
        return cls(
            down=down,
            across=across,
            block=block,
            registers=registers,
            rows=_multiple(math.ceil(shape.rows / down.outputs), block),
            columns=_multiple(math.ceil(shape.columns / across.outputs), step),
        )

    @property
    def tiles(self) -> int:
        """Of a block."""
        return self.block * self.columns

    def waste(self, shape: Shape) -> float:
        """Tiles computed for one that is wanted."""
        wanted = math.ceil(shape.rows / self.down.outputs) * math.ceil(shape.columns / self.across.outputs)
        return self.rows * self.columns / wanted


def _multiple(count: int, step: int) -> int:
    return math.ceil(count / step) * step


def tilings(shape: Shape) -> list[list[int]]:
    """``[-1, outputs, rows of tiles in a block, tiles in registers]``, those first that compute least in vain."""
    return [sizes for outputs in interpolation.OUTPUTS for sizes in _tilings(shape, outputs)]


def _tilings(shape: Shape, outputs: int) -> list[list[int]]:
    down, across = (interpolation.along(outputs, taps).outputs for taps in shape.taps)
    rows, columns = math.ceil(shape.rows / down), math.ceil(shape.columns / across)
    found = []
    for block in range(1, rows + 1):
        if block == 1 or (block * columns <= _MOST_TILES and _multiple(rows, block) <= rows * _MOST_WASTE):
            found += [(Tiling.of(sizes, shape).waste(shape), sizes) for sizes in _registered(outputs, block, columns)]
    found.sort(key=lambda pair: (pair[0], -pair[1][3], pair[1][2]))
    return [sizes for _, sizes in found[:_MOST_WAYS]]


def _registered(outputs: int, block: int, columns: int) -> list[list[int]]:
    """The two largest numbers of registers that divide the tiles, and where they are few, one that needs more tiles."""
    fitting = [each for each in range(1, _MOST_REGISTERS + 1) if block * columns % each == 0]
    enough = [each for each in fitting[-2:] if each >= _FEWEST_REGISTERS]
    if max(enough, default=0) < _MOST_REGISTERS // 2:
        count = range(_MOST_REGISTERS // 2, _MOST_REGISTERS + 1)
        enough = [*enough, min(count, key=lambda each: (_multiple(block * columns, each), -each))]
    return [[-1, outputs, block, each] for each in enough]
