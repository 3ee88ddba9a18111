"""Sizes of a 3×3 convolution by minimal filtering, and the ways to cut it into tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.topi.nn.utils import get_pad_tuple

from tuner.engines.relay.templates.interpolation import FILTERINGS, KERNEL, Filtering

_MOST_REGISTERS = 16
"""Tiles whose sums are in registers: TVM keeps 1 kB on the stack, from where LLVM takes it into registers, and twice as
many ran at half the speed."""
_FEWEST_REGISTERS = 4
"""With fewer the multipliers wait for sums."""
_MOST_TILES = 64
"""In a block."""
_MOST_WASTE = 1.34
"""Rows of tiles computed for one that is wanted, where blocks do not divide them."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of a convolution: NCHW."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    top: int
    left: int
    rows: int
    columns: int
    """Of the output."""

    @classmethod
    def of(cls, data: Sequence[int], filters: int, padding: Any) -> Shape:
        batch, channels, height, width = data
        top, left, bottom, right = get_pad_tuple(padding, (KERNEL, KERNEL))
        return cls(
            batch=batch,
            channels=channels,
            height=height,
            width=width,
            filters=filters,
            top=int(top),
            left=int(left),
            rows=height + int(top + bottom) - KERNEL + 1,
            columns=width + int(left + right) - KERNEL + 1,
        )


@dataclass(frozen=True, kw_only=True)
class Tiling:
    filtering: Filtering
    block: int
    """Rows of tiles that are computed together."""
    registers: int
    """Tiles of a block that are multiplied at once."""
    down: int
    """Rows of tiles of an image, a multiple of ``block``."""
    across: int

    @classmethod
    def of(cls, sizes: Sequence[int], shape: Shape) -> Tiling:
        outputs, block, registers = (int(size) for size in sizes[1:])
        return cls(
            filtering=FILTERINGS[outputs],
            block=block,
            registers=registers,
            down=math.ceil(math.ceil(shape.rows / outputs) / block) * block,
            across=math.ceil(shape.columns / outputs),
        )

    @property
    def tiles(self) -> int:
        return self.block * self.across


def tilings(shape: Shape) -> list[list[int]]:
    """``[-1, outputs, rows of tiles in a block, tiles in registers]``, those first that compute least in vain."""
    found = []
    for outputs in sorted(FILTERINGS, reverse=True):
        down, across = math.ceil(shape.rows / outputs), math.ceil(shape.columns / outputs)
        for block in range(1, down + 1):
            waste = math.ceil(down / block) * block / down
            if block > 1 and (block * across > _MOST_TILES or waste > _MOST_WASTE):
                continue
            fitting = [each for each in range(1, _MOST_REGISTERS + 1) if block * across % each == 0]
            enough = [each for each in fitting[-2:] if each >= _FEWEST_REGISTERS]
            found += [(waste, -outputs, -each, block) for each in enough or fitting[-1:]]
    return [[-1, -outputs, block, -registers] for _, outputs, registers, block in sorted(found)]
