"""One reduction, tiled so that its inner tile stays in a processor's vector registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.target import codegen

_NEON_LANES = 4


@dataclass(frozen=True, kw_only=True)
class Machine:
    lanes: int
    """float32 values in a vector register."""
    accumulators: int
    """Vector registers that a tile may fill; the others hold what is multiplied."""
    threads: int

    @classmethod
    def of(cls, target: Any) -> Machine:
        lanes = max(codegen.llvm_get_vector_width(target) // 32, _NEON_LANES)
        # AVX-512 and NEON have 32 vector registers, AVX and SSE 16.
        wide = lanes >= 16 or target.attrs.get("mtriple", "").startswith(("aarch64", "arm64"))
        return cls(lanes=lanes, accumulators=24 if wide else 12, threads=int(target.attrs.get("num-cores", 1)))


def tile(schedule: Any, block: Any, machine: Machine, *, parallel: bool) -> list[Any]:
    """Tile ``block`` and compute what follows it per tile; returns all blocks that were placed.

    The last spatial loop becomes vectors, the one before it rows of them: as many as registers hold. This is the
    micro-kernel of a matrix product (Goto and van de Geijn, ACM TOMS 34(3), 2008) for any sum over an outer product.
    """
    consumers = schedule.get_consumers(block)
    if len(consumers) == 1 and _is_elementwise(schedule, block, consumers[0]):
        [epilogue] = consumers
        schedule.set_scope(block, 0, "local")
    else:
        epilogue = schedule.cache_write(block, 0, "local")
    every, reduced = _loops(schedule, block)
    # Behind loops of one step lies what is contiguous in memory.
    spatial = [loop for loop in every if int(schedule.get(loop).extent) > 1] or every[-1:]
    unit = [loop for loop in every if not any(loop.same_as(other) for other in spatial)]
    sizes = _tile_sizes([int(schedule.get(loop).extent) for loop in spatial], machine)
    outer_column, vectors, vector = schedule.split(spatial[-1], [None, sizes.vectors, sizes.width])
    inner, outer = [vectors, vector], [*unit, *spatial[:-1], outer_column]
    if sizes.rows > 1:
        outer_row, row = schedule.split(spatial[-2], [None, sizes.rows])
        inner, outer = [row, vectors, vector], [*unit, *spatial[:-2], outer_row, outer_column]
    schedule.reorder(*outer, *reduced, *inner)
    place = schedule.fuse(*outer)
    schedule.reverse_compute_at(epilogue, place)
    if parallel:
        schedule.parallel(place)
    tail = schedule.get_loops(epilogue)[1:]
    if tail:
        columns, lanes = schedule.split(tail[-1], [None, sizes.width])
        _keep_in_registers(schedule, [*tail[:-1], columns, lanes])
    _keep_in_registers(schedule, inner)
    start = schedule.decompose_reduction(block, reduced[0])
    _keep_in_registers(schedule, schedule.get_loops(start)[1:])
    return [block, epilogue, start]


def _keep_in_registers(schedule: Any, loops: list[Any]) -> None:
    """Leave no loop around a tile: every row unrolled, every column in a vector."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(loops[-1])


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    rows: int
    vectors: int
    """In a row."""
    width: int
    """Values in a vector: a power of two, as LLVM takes any other apart."""


def _tile_sizes(extents: list[int], machine: Machine) -> _Sizes:
    """The most multiplications per load that the accumulators allow."""
    row_extent = extents[-2] if len(extents) > 1 else 1
    best, best_score = _Sizes(rows=1, vectors=1, width=1), 0.0
    for columns in _divisors(extents[-1], 4 * machine.lanes):
        width = vector_width(columns, machine.lanes)
        vectors = columns // width
        for rows in _divisors(row_extent, machine.accumulators // vectors):
            # Until about ten sums run side by side, the processor waits for the sum before.
            busy = min(rows * vectors, 10) / 10
            score = width * busy * (rows * vectors) / (rows + vectors + 1)
            if score > best_score:
                best, best_score = _Sizes(rows=rows, vectors=vectors, width=width), score
    return best


def vector_width(extent: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides ``extent``."""
    width = 1
    while width * 2 <= most and extent % (width * 2) == 0:
        width *= 2
    return width


def _divisors(number: int, most: int) -> list[int]:
    return [size for size in range(1, min(number, most) + 1) if number % size == 0]


def _loops(schedule: Any, block: Any) -> tuple[list[Any], list[Any]]:
    spatial: list[Any] = []
    reduced: list[Any] = []
    for loop, variable in zip(schedule.get_loops(block), schedule.get(block).iter_vars, strict=True):
        (reduced if variable.iter_type == tirx.IterVar.CommReduce else spatial).append(loop)
    return spatial, reduced


def _is_elementwise(schedule: Any, block: Any, consumer: Any) -> bool:
    """Whether the consumer only maps and has a loop for each of the block's spatial ones."""
    ours = [each for each in schedule.get(block).iter_vars if each.iter_type == tirx.IterVar.DataPar]
    theirs = schedule.get(consumer).iter_vars
    extents = [int(each.dom.extent) for each in ours]
    return [int(each.dom.extent) for each in theirs] == extents and all(
        each.iter_type == tirx.IterVar.DataPar for each in theirs
    )
