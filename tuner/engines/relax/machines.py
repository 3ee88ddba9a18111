"""What schedules for CPUs are made for, and tiles in its registers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import s_tir, tirx

from tuner.engines.relax import targets

MOST_LANES = 16
"""Of vectors of 32-bit numbers, on any target."""
CACHE_BYTES = 1 << 19
"""Part of a core's second cache for what is read again and again; servers have a megabyte or two."""
WORTH_THREADS = 1 << 15
"""Elements of a map below which waking threads, some microseconds, costs more than it saves."""
_WORTH = 0.92
"""Padding columns must reduce the estimated time to less than this share."""
_WORTH_REMAINDER = 0.9
"""A tile that divides the rows is kept unless its speed is below this share: a remainder doubles the code."""
_MOST_ADDED = 2
"""Maximum number of whole vectors of padding columns."""
_MOST_WAYS = 12
"""Maximum number of schedules that a search tries for a function that has its own."""
_FEWEST_SUMS = 10
"""Sums in registers with which multipliers need not wait for the previous ones."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Sums in registers: rows of vectors."""

    rows: int
    vectors: int
    """Vectors per row."""
    width: int
    """Values per vector: a power of two, since LLVM splits any other."""

    def share(self, lanes: int) -> float:
        """Return the estimated share of peak speed, for cores that load as many vectors a cycle as they multiply."""
        sums = self.rows * self.vectors
        return sums / max(sums, self.rows + self.vectors, _FEWEST_SUMS) * self.width / lanes

    @property
    def reuse(self) -> float:
        """Return the multiplications per load."""
        return self.width * self.rows * self.vectors / (self.rows + self.vectors + 1)


@dataclass(frozen=True, kw_only=True)
class Machine:
    lanes: int
    """float32 values in a vector register."""
    accumulators: int
    """Vector registers that a tile may fill; the others hold the operands."""
    threads: int

    @classmethod
    def of(cls, target: Any) -> Machine:
        lanes = targets.lanes_of(target)
        # AVX-512 and NEON have 32 vector registers, AVX and SSE 16.
        wide = lanes >= 16 or target.attrs.get("mtriple", "").startswith(("aarch64", "arm64"))
        return cls(lanes=lanes, accumulators=24 if wide else 12, threads=int(target.attrs.get("num-cores", 1)))

    def idle(self, tasks: int) -> float:
        """Return how many times as long equal tasks take as if they could be divided among the threads evenly."""
        return math.ceil(tasks / self.threads) * self.threads / tasks

    def rows(self, vectors: int) -> int:
        """Return of how many rows a tile of so many vectors may be, beside whose sums a row's operands have room."""
        free = self.accumulators * 4 // 3 - vectors - 1
        return min(self.accumulators, free) // vectors

    def tile(self, rows: int, columns: int, *, allow_remainder: bool = False) -> Tile:
        """Return the quickest tile by estimate that fits the accumulators; among equals, the one with most reuse.

        It divides the rows, unless a remainder is allowed and a tile with one is much quicker.
        """
        widths = [(wide, vector_width(wide, self.lanes)) for wide in divisors(columns, 4 * self.lanes)]
        fitting = [(wide // width, width) for wide, width in widths if self.rows(wide // width) > 0]
        dividing = self._quickest(rows, [self.tile_of(rows, *each) for each in fitting])
        if not allow_remainder:
            return dividing
        every = [
            Tile(rows=high, vectors=vectors, width=width)
            for vectors, width in fitting
            for high in range(1, min(rows, self.rows(vectors)) + 1)
        ]
        quickest = self._quickest(rows, every)
        return quickest if self.share(rows, dividing) < _WORTH_REMAINDER * self.share(rows, quickest) else dividing

    def tile_of(self, rows: int, vectors: int, width: int) -> Tile:
        """Return the quickest tile that divides the rows, with so many vectors in a row, and values in each."""
        return self._quickest(
            rows, [Tile(rows=high, vectors=vectors, width=width) for high in divisors(rows, self.rows(vectors))]
        )

    def _quickest(self, rows: int, tiles: list[Tile]) -> Tile:
        return max(tiles, key=lambda tile: (self.share(rows, tile), tile.reuse))

    def share(self, rows: int, tile: Tile) -> float:
        """Return the estimated share of peak speed of tiles for so many rows, with a smaller tile for the remainder."""
        whole, remainder = divmod(rows, tile.rows)
        time = whole * tile.rows / tile.share(self.lanes)
        if remainder:
            time += remainder / replace(tile, rows=remainder).share(self.lanes)
        return rows / time

    def whole(self, rows: int, columns: int, *, padding: float = 0.0, allow_remainder: bool = False) -> int:
        """Return the number of columns, padded to whole vectors if that makes the product quicker.

        ``padding`` is the additional cost of padding, in units of the time of one column at peak speed.
        """

        def time(count: int) -> float:
            return count / self.share(rows, self.tile(rows, count, allow_remainder=allow_remainder))

        fewest = math.ceil(columns / self.lanes)
        best = min((self.lanes * (fewest + added) for added in range(_MOST_ADDED + 1)), key=time)
        return best if time(best) + padding < _WORTH * time(columns) else columns


def keep_in_registers(schedule: Any, *loops: Any) -> None:
    """Unroll every row and vectorize every column of a tile, so that no loop remains around it."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(loops[-1])


def space(steps: Callable[[Any], Any]) -> Any:
    """Return MetaSchedule's space of a function: schedules of some sizes, the first of those that its steps have.

    ``steps`` makes of a ``Schedule`` what has ``sizes()``, and ``apply(*sizes)`` for one of them.
    """

    def schedules(schedule: Any) -> list[Any]:
        return [steps(schedule.copy()).apply(*each) for each in steps(schedule).sizes()[:_MOST_WAYS]]

    return s_tir.meta_schedule.space_generator.ScheduleFn(schedules, sch_rules=[], postprocs=[], mutator_probs={})


def own_loops(schedule: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """Return the innermost loops, one for each axis of a block: spatial ones and reductions."""
    axes = schedule.get(block).iter_vars
    loops = schedule.get_loops(block)[-len(axes) :]
    kinds = [axis.iter_type == tirx.IterVar.CommReduce for axis in axes]
    return (
        [loop for loop, is_reduced in zip(loops, kinds, strict=True) if not is_reduced],
        [loop for loop, is_reduced in zip(loops, kinds, strict=True) if is_reduced],
    )


def sum_in_registers(schedule: Any, block: Any, place: Any, width: int) -> None:
    """Compute the sums of a tile in registers at the loop ``place``: rows of vectors of so many values."""
    schedule.set_scope(block, 0, "local")
    schedule.compute_at(block, place, preserve_unit_loops=True)
    [*outer, row, column], reduced = own_loops(schedule, block)
    vector, lane = schedule.split(column, [None, width])
    schedule.reorder(*outer, *reduced, row, vector, lane)
    keep_in_registers(schedule, row, vector, lane)
    start = schedule.decompose_reduction(block, reduced[0])
    keep_in_registers(schedule, *schedule.get_loops(start)[-3:])


def vector_width(extent: int, most: int) -> int:
    """Return the largest power of two up to ``most`` that divides ``extent``."""
    width = 1
    while width * 2 <= most and extent % (width * 2) == 0:
        width *= 2
    return width


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of ``number`` up to ``most``."""
    return [size for size in range(1, min(number, most) + 1) if number % size == 0]
