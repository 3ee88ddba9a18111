"""Schedules of untuned builds, for tensor functions without a record.

TVM leaves such functions as plain loops on a CPU, about fifty times slower than necessary, and they cannot run on a GPU
at all. On a GPU ``dlight`` schedules them; this module contains the schedules for CPUs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from tuner.engines.relax import targets
from tuner.engines.relax.graph import attention, chains, concatenations, filtering
from tuner.engines.relax.machines import (
    CACHE_BYTES,
    MOST_LANES,
    WORTH_THREADS,
    Machine,
    divisors,
    keep_in_registers,
    vector_width,
)  # fmt: skip
from tuner.engines.runtime import prefetching, progress

_log = logging.getLogger(__name__)
_FEWEST_LINES = 4
_FEWEST_PANELS = 3
"""Panels of weights a thread, the first of which nothing prefetches."""
_UNEVEN = 4
"""Bands a thread from which on it does not matter that some thread has one more."""


def tile(schedule: Any, block: Any, machine: Machine, *, parallel: bool) -> list[Any]:
    """Tile ``block`` and compute what follows it per tile; return all blocks that were placed.

    The last spatial loop becomes vectors, the one before it rows of them, as many as registers hold. This is the
    micro-kernel of a matrix product (Goto and van de Geijn, ACM TOMS 34(3), 2008), for any sum over an outer product.
    """
    consumers = schedule.get_consumers(block)
    if len(consumers) == 1 and _is_elementwise(schedule, block, consumers[0]):
        [epilogue] = consumers
        schedule.set_scope(block, 0, "local")
    else:
        epilogue = schedule.cache_write(block, 0, "local")
    every, reduced = _loops(schedule, block)
    # Loops of extent one may follow the axis that is contiguous in memory.
    spatial = [loop for loop in every if int(schedule.get(loop).extent) > 1] or every[-1:]
    unit = [loop for loop in every if not any(loop.same_as(other) for other in spatial)]
    # Between two others, one would keep them from being fused.
    schedule.reorder(*unit, *spatial)
    extents = [int(schedule.get(loop).extent) for loop in spatial]
    traffic = _Traffic.of(schedule, block)
    columns = _group(schedule, block, extents[-1])
    if traffic.rows == 0 and columns == extents[-1]:
        # In a depthwise convolution, rows share weights, but vectors of a row share no input.
        columns = vector_width(columns, machine.lanes)
    sizes = machine.tile(extents[-2] if len(extents) > 1 else 1, columns, allow_remainder=True)
    outer_column, vectors, vector = schedule.split(spatial[-1], [None, sizes.vectors, sizes.width])
    packed = _pack_weights(schedule, block, sizes.vectors * sizes.width)
    inner, rows = [vectors, vector], spatial[:-1]
    uneven: Any = None
    if sizes.rows > 1:
        outer_row, row = schedule.split(spatial[-2], [None, sizes.rows])
        inner, rows = [row, vectors, vector], spatial[:-2]
        if extents[-2] % sizes.rows:
            uneven = outer_row
        else:
            rows.append(outer_row)
    outer = [*unit, *_outer_loops(schedule, rows, outer_column, traffic, machine.threads)]
    schedule.reorder(*outer, *([] if uneven is None else [uneven]), *reduced, *inner)
    outermost = place = schedule.fuse(*outer)
    padded = _padded(schedule, block) if outer[-1].same_as(outer_column) else None
    bands = _bands(schedule, padded, extents[:-2], machine) if padded else 1
    if bands > 1:
        outermost, place = schedule.split(place, [bands, None])
        schedule.compute_at(padded, outermost, preserve_unit_loops=True)
    if uneven is not None:
        # TVM peels the last iteration, so that whole tiles have no conditions.
        place = uneven
        schedule.annotate(place, "pragma_loop_partition_hint", True)
    schedule.reverse_compute_at(epilogue, place)
    if parallel:
        schedule.parallel(outermost)
    depth = len(schedule.get_loops(block)) - len(reduced) - len(inner)
    tail = schedule.get_loops(epilogue)[depth:]
    if tail:
        stored = int(schedule.get(epilogue).iter_vars[-1].dom.extent)
        width = vector_width(stored, sizes.width)
        columns, lanes = schedule.split(tail[-1], [None, width])
        keep_in_registers(schedule, *tail[:-1], columns, lanes)
    keep_in_registers(schedule, *inner)
    start = schedule.decompose_reduction(block, reduced[0])
    keep_in_registers(schedule, *schedule.get_loops(start)[depth:])
    return [block, epilogue, start, *packed, *([padded] if bands > 1 else [])]


@dataclass(frozen=True, kw_only=True)
class _Traffic:
    """What a sum over an outer product reads, for each step of the loops that both operands have in common."""

    shared: int
    """Number of spatial loops, the first ones, that index what columns read: batches of a product."""
    columns: int
    """Bytes that the columns read: weights."""
    rows: int
    """Bytes that the rows read: activations."""

    @classmethod
    def of(cls, schedule: Any, block: Any) -> _Traffic:
        statement = schedule.get(block)
        axes = [each for each in statement.iter_vars if each.iter_type == tirx.IterVar.DataPar]
        spatial = [each for each in axes if int(each.dom.extent) > 1] or axes[-1:]
        names = [each.var.name for each in spatial]
        reads = [(_variables(read), _bytes(read.source)) for read in statement.reads]
        by_column = [each for each in reads if names[-1] in each[0]]
        shared = max((names.index(name) + 1 for used, _ in by_column for name in used & set(names[:-1])), default=0)
        steps = math.prod(int(each.dom.extent) for each in spatial[:shared])
        others = [each for each in reads if names[-1] not in each[0]]
        columns, rows = (sum(size for _, size in each) // steps for each in (by_column, others))
        return cls(shared=shared, columns=columns, rows=rows)

    def beyond_cache(self, share: float, panels: int) -> float:
        """Return the bytes that come from beyond the cache if this share of the rows is computed at a time."""
        columns = self.columns if self.columns <= CACHE_BYTES else self.columns / share
        return columns + self.rows * (1 if self.rows * share <= CACHE_BYTES else panels)


def _variables(region: Any) -> set[str]:
    return {variable.name for part in region.region for variable in tirx.analysis.undefined_vars(part.min)}


def _bytes(buffer: Any) -> int:
    return math.prod(int(size) for size in buffer.shape) * int(tvm.DataType(buffer.dtype).bits) // 8


def _outer_loops(schedule: Any, rows: list[Any], column: Any, traffic: _Traffic, threads: int) -> list[Any]:
    """Return the loops over tiles, in the order that reads least from beyond the second cache.

    If the weights do not stay in it, all the rows that do are computed with the same columns (the blocks of Goto and
    van de Geijn, ibid.).
    """
    shared, rows = rows[: traffic.shared], rows[traffic.shared :]
    if not rows:
        return [*shared, column]
    row = schedule.fuse(*rows)
    tiles, panels = (int(schedule.get(loop).extent) for loop in (row, column))
    block = min(divisors(tiles, tiles), key=lambda block: traffic.beyond_cache(block / tiles, panels))
    is_cold = traffic.columns >= prefetching.FEWEST_BYTES and traffic.rows <= CACHE_BYTES
    if block == 1 and is_cold and panels >= _FEWEST_PANELS * threads:
        # While the tiles of a panel are computed, they prefetch the next one (``runtime.prefetching``).
        block = tiles
    if block == 1:
        return [*shared, row, column]
    outer, inner = schedule.split(row, [None, block])
    return [*shared, outer, column, inner]


def _padded(schedule: Any, block: Any) -> Any | None:
    """Return the block that puts zeros around an input of ``block``, if there is one and nothing else reads it."""
    producers = [each for each in schedule.get_producers(block) if not _is_reduction(schedule, each)]
    alone = [each for each in producers if _branches(schedule, each) and len(schedule.get_consumers(each)) == 1]
    return alone[0] if alone else None


def _bands(schedule: Any, padded: Any, extents: list[int], machine: Machine) -> int:
    """Return in how many bands of lines the input is padded, each just before it is read from the cache.

    Neighbouring bands both have the lines at their border, so that bands of a few lines would cost more than they gain.
    A band with parts of two images would have all the lines of both.

    ``extents``: of the loops over images and their lines, the innermost last.
    """
    size, threads, lines = _bytes(schedule.get(padded).writes[0].source), machine.threads, math.prod(extents)
    if size <= CACHE_BYTES:
        return 1
    counts = [
        bands
        for bands in divisors(lines, lines // _FEWEST_LINES)
        if extents[-1] % (lines // bands) == 0 or lines // bands % extents[-1] == 0
    ]
    even = [bands for bands in counts if bands % threads == 0 or bands >= _UNEVEN * threads]
    return next((bands for bands in even if bands * CACHE_BYTES >= size), max(even, default=1))


def _group(schedule: Any, block: Any, columns: int) -> int:
    """Return the number of columns in a group, or of all columns if the block has no groups.

    A vector across the border of two groups would load its values one by one.
    """
    last = [each.var.name for each in schedule.get(block).iter_vars if each.iter_type == tirx.IterVar.DataPar][-1]
    sizes = [int(size) for size in re.findall(rf"\b{last} // (?:T.int64\()?(\d+)", schedule.get(block).body.script())]
    return math.gcd(columns, *sizes)


def _pack_weights(schedule: Any, block: Any, columns: int) -> list[Any]:
    """Store constants in the order in which tiles of so many columns read them; return the blocks that do.

    They are those of MetaSchedule's ``RewriteLayout``: ``lowering.finish`` computes them at build time.
    Rows of wide matrices lie in a page each, many of them in the same set of a cache.
    """
    function = schedule.mod["main"]
    constants = [function.params[int(place)] for place in function.attrs.get("layout_free_buffers") or ()]
    made: list[Any] = []
    statement = schedule.get(block)
    spatial = [each.var for each in statement.iter_vars if each.iter_type == tirx.IterVar.DataPar]
    for place, read in enumerate(statement.reads):
        dims = [int(size) for size in read.source.shape]
        by_column = [at for at, part in enumerate(read.region) if part.min.same_as(spatial[-1])]
        if not any(read.source.same_as(each) for each in constants) or len(by_column) != 1:
            continue
        [column] = by_column
        if dims[column] % columns or _bytes(read.source) < _PACKED_BYTES:
            continue
        made.append(schedule.cache_read(block, place, "global"))
        schedule.transform_layout(block, ("read", place), _panels(column, columns))
        schedule.annotate(made[-1], "meta_schedule.layout_rewrite_preproc", True)
    return made


def _panels(column: int, columns: int) -> Callable[..., list[Any]]:
    def mapped(*indices: Any) -> list[Any]:
        others = [index for place, index in enumerate(indices) if place != column]
        return [indices[column] // columns, *others, indices[column] % columns]

    return mapped


def _loops(schedule: Any, block: Any) -> tuple[list[Any], list[Any]]:
    spatial: list[Any] = []
    reduced: list[Any] = []
    for loop, variable in zip(schedule.get_loops(block), schedule.get(block).iter_vars, strict=True):
        (reduced if variable.iter_type == tirx.IterVar.CommReduce else spatial).append(loop)
    return spatial, reduced


def _is_elementwise(schedule: Any, block: Any, consumer: Any) -> bool:
    """Return whether the consumer is a map with one loop for each of the block's spatial loops.

    It may leave out padding columns at the end (``relax.columns``).
    """
    producer, statement = schedule.get(block), schedule.get(consumer)
    ours = [each for each in producer.iter_vars if each.iter_type == tirx.IterVar.DataPar]
    theirs = statement.iter_vars
    *outer, columns = [int(each.dom.extent) for each in ours]
    *others, kept = [int(each.dom.extent) for each in theirs]
    if others != outer or any(each.iter_type != tirx.IterVar.DataPar for each in theirs):
        return False
    made = producer.writes[0].source
    reads = [read.region[-1].min for read in statement.reads if read.source.same_as(made)]
    return kept == columns or (kept < columns and all(index.same_as(theirs[-1].var) for index in reads))


_PACKED_BYTES = 1 << 15
"""Smaller constants stay in the first cache in any order."""
_FEWEST_LANES = 4
"""Parts of vectors that are worth splitting a sum for."""
_SCHEDULED = "tirx.is_scheduled"
_TILE = 8
"""Maximum rows and columns of the tiles of a transposition: a set of the first cache has about as many lines."""
_TURNED = 4
"""Maximum number of vectors along the input of a transposition that are turned together."""
_SET = 1 << 10
"""Numbers, of 4 bytes, between those that lie in the same set of the first cache."""
_SUMMED_IN_A_LANE = 1 << 13
"""Additions of a sum in each lane of a vector, likewise."""


def apply(module: Any, target: Any) -> Any:
    """Schedule every function of ``module`` that is not scheduled yet."""
    with target:
        if targets.is_gpu(target):
            gpu = dlight.gpu
            rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
            return dlight.ApplyDefaultSchedule(*rules)(module)
        plain = [
            (variable, function)
            for variable, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc) and not function.attrs.get(_SCHEDULED)
        ]
        progress.begin("schedule", len(plain))
        for variable, function in plain:
            module[variable] = _scheduled(function, target)
            progress.advance()
    return module


def default(module: Any, target: Any) -> Any | None:
    """Return the CPU ``Schedule`` of a module with one function, or None if no rule fits."""
    return fitting(module, target)[1]


def fitting(module: Any, target: Any) -> tuple[str, Any | None]:
    """Likewise, with the name of the rule; the name is empty if none fits."""
    machine = Machine.of(target)
    for rule in (_filtered, _chained, _attended, _by_rows, _softmax_like, _joined, _tiled, _plain):
        try:
            return rule.__name__, rule(s_tir.Schedule(module), machine, target)
        except (tvm.s_tir.ScheduleError, _Unfit) as error:
            _log.debug("%s does not fit: %s", rule.__name__, error)
        except Exception:  # noqa: BLE001 - primitives raise others on unusual functions
            _log.info("%s failed; another schedule is used", rule.__name__, exc_info=True)
    return "", None


def _scheduled(function: Any, target: Any) -> Any:
    schedule = default(tvm.IRModule({"main": function}), target)
    return schedule.mod["main"].with_attr(_SCHEDULED, True) if schedule else function


def _filtered(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    return filtering.apply(schedule, machine)


def _chained(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    return chains.apply(schedule, machine)


def _attended(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    if not attention.is_joined(schedule):
        raise _Unfit("it is no attention")
    return attention.apply(schedule, machine)


def _by_rows(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    """Compute everything row by row, and sums and maxima of a row in the lanes of a vector: softmax, layer norm.

    The lanes are combined last (``rfactor``; Suriana, Adams and Kamil, CGO 2017).
    """
    if not _reduces_contiguous_axis(schedule):
        raise _Unfit("no reduction along the last axis")
    for block in _blocks(schedule):
        if not _is_reduction(schedule, block) and len(schedule.get_consumers(block)) == 1:
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                schedule.compute_inline(block)
    sums = [block for block in _blocks(schedule) if _is_reduction(schedule, block)]
    # What remains of a row behind whole vectors is added up by itself.
    long = [block for block in sums if _steps(schedule, _loops(schedule, block)[1]) >= MOST_LANES] or sums
    partial = {_name(schedule, _in_lanes(schedule, block, machine)) for block in long}
    blocks = _blocks(schedule)
    last = [block for block in blocks if not schedule.get_consumers(block)]
    if len(last) != 1:
        raise _Unfit("several results")
    row = schedule.fuse(*_row_loops(schedule, last[0], sums[0]))
    if _is_worth_threads(schedule, last[0], machine):
        schedule.parallel(row)
    for block in reversed(blocks):
        if _name(schedule, block) != _name(schedule, last[0]):
            # Unit loops keep loops and variables in the same order.
            schedule.compute_at(block, row, preserve_unit_loops=True)
    for block in blocks:
        _fill_vectors(schedule, block, machine, is_partial=_name(schedule, block) in partial)
    return schedule


def _row_loops(schedule: Any, last: Any, reduction: Any) -> list[Any]:
    """Return the loops of the last block that a reduction has, too; all of them if its results are the last block's."""
    loops = schedule.get_loops(last)
    results = [int(size) for size in schedule.get(reduction).writes[0].source.shape]
    return loops if [int(schedule.get(loop).extent) for loop in loops] == results else loops[:-1]


def _steps(schedule: Any, loops: list[Any]) -> int:
    """Return the number of iterations of nested loops."""
    return math.prod(int(schedule.get(loop).extent) for loop in loops)


def _name(schedule: Any, block: Any) -> str:
    return str(schedule.get(block).name_hint)


def _in_lanes(schedule: Any, block: Any, machine: Machine) -> Any:
    """Split a reduction into one for each lane, whose block is returned, and one of the lanes."""
    _, reduced = _loops(schedule, block)
    lanes = vector_width(int(schedule.get(reduced[0]).extent), machine.lanes)
    if len(reduced) > 1 or lanes < _FEWEST_LANES:
        raise _Unfit("its rows have no whole vectors")
    _, lane = schedule.split(reduced[0], [None, lanes])
    writes = schedule.get(block).writes
    partial = schedule.rfactor(lane, factor_axis=len(writes[0].region))
    for place in range(len(writes)):
        schedule.set_scope(partial, place, "local")
    return partial


def _fill_vectors(schedule: Any, block: Any, machine: Machine, *, is_partial: bool) -> None:
    """Vectorize what a block computes of a row."""
    own = schedule.get_loops(block)[1:]
    summed = [
        loop
        for loop, variable in zip(own, schedule.get(block).iter_vars, strict=False)
        if variable.iter_type == tirx.IterVar.CommReduce
    ]
    if not own:
        return
    if not _is_reduction(schedule, block):
        if _steps(schedule, own[:-1]) > 1:
            raise _Unfit("its rows are not those of its result")
        lanes = vector_width(int(schedule.get(own[-1]).extent), machine.lanes)
        if lanes > 1:
            schedule.vectorize(schedule.split(own[-1], [None, lanes])[1])
    elif is_partial:
        spatial = [loop for loop in own if not any(loop.same_as(each) for each in summed)]
        *unit, lane = sorted(spatial, key=lambda loop: int(schedule.get(loop).extent))
        if any(int(schedule.get(loop).extent) > 1 for loop in unit):
            raise _Unfit("its rows are not those of its result")
        schedule.reorder(*summed, lane)
        schedule.vectorize(lane)
        schedule.decompose_reduction(block, summed[0])
    else:
        schedule.unroll(summed[0] if len(own) > 1 else own[0])


def _softmax_like(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    if not _reduces_contiguous_axis(schedule):
        raise _Unfit("no reduction along the last axis")
    found = dlight.cpu.Reduction().apply(schedule.mod["main"], target, False)
    if found is None:
        raise _Unfit("not of the form of softmax")
    return found


def _joined(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    """Compute each part of a concatenation in a loop of its own."""
    if any(_is_reduction(schedule, block) for block in _blocks(schedule)):
        raise _Unfit("it reduces")
    _inline(schedule)
    found = [(block, concatenations.borders(schedule.get(block))) for block in _blocks(schedule)]
    if not any(joined for _, joined in found):
        raise _Unfit("it joins nothing")
    for block, joined in found:
        if joined:
            _divide(schedule, block, *joined, machine)
        else:
            _stream(schedule, block, machine)
    return schedule


def _divide(schedule: Any, block: Any, axis: int, borders: list[int], machine: Machine) -> None:
    loops = schedule.get_loops(block)
    outer, is_shared = loops[:axis], _is_worth_threads(schedule, block, machine)
    if is_shared and _steps(schedule, outer) < machine.threads:
        raise _Unfit("its parts would take turns")
    schedule.loop_partition(loops[axis], [end - begin for begin, end in pairwise([0, *borders])] + [None])
    if is_shared:
        schedule.parallel(schedule.fuse(*outer))


def _tiled(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    """Inline, tile every reduction for registers and vectors, vectorize the rest, and use threads."""
    if _reduces_contiguous_axis(schedule):
        raise _Unfit("vectors would run across rows")
    _inline(schedule)
    placed: list[Any] = []
    for block in _blocks(schedule):
        if _is_reduction(schedule, block):
            placed += tile(schedule, block, machine, parallel=_is_worth_threads(schedule, block, machine))
    names = {_name(schedule, block) for block in placed}
    for block in _blocks(schedule):
        if _name(schedule, block) not in names and not _is_reduction(schedule, block):
            _stream(schedule, block, machine)
    return schedule


def _plain(schedule: Any, machine: Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    """Parallelize the outermost loops and leave the rest to LLVM."""
    for block in _blocks(schedule):
        _run_in_parallel(schedule, block, machine)
    return schedule


class _Unfit(Exception):
    """A rule does not apply to a function."""


def _inline(schedule: Any) -> None:
    given = schedule.mod["main"].params
    for block in _blocks(schedule):
        written = schedule.get(block).writes[0].source
        # TVM refuses to inline results. Its error contains the whole function, which takes a second with 30 blocks.
        if _is_reduction(schedule, block) or any(written.same_as(each) for each in given):
            continue
        users = schedule.get_consumers(block)
        # A padded input would be checked for its borders in the innermost loop.
        if _branches(schedule, block) and any(_is_reduction(schedule, each) for each in users):
            continue
        # LLVM 22 computes wrong values for Zen 4 from a choice between loads whose indices are remainders, and makes no
        # gathers of a choice between loads.
        if _branches(schedule, block) and any(
            _rearranges(schedule, each) or _gathers(schedule, each) for each in users
        ):
            continue
        with contextlib.suppress(tvm.s_tir.ScheduleError):
            schedule.compute_inline(block)


def _stream(schedule: Any, block: Any, machine: Machine) -> None:
    """Vectorize the last loop of a block that only maps."""
    loops = schedule.get_loops(block)
    if loops and not _branches(schedule, block) and not _gathers(schedule, block):
        extent = int(schedule.get(loops[-1]).extent)
        lanes = vector_width(_group(schedule, block, extent), machine.lanes)
        crossed = _crossed(schedule, block)
        if crossed is not None:
            _transpose(schedule, block, crossed, machine)
        elif lanes > 1:
            _, inner = schedule.split(loops[-1], [None, lanes])
            schedule.vectorize(inner)
    _run_in_parallel(schedule, block, machine)


def _crossed(schedule: Any, block: Any) -> int | None:
    """Return the place of the loop along which a transposed input is contiguous; None if there is none."""
    statement, known = schedule.get(block), tvm.sym.Analyzer()
    variables = [each.var for each in statement.iter_vars]
    if len(variables) != len(schedule.get_loops(block)):
        return None
    for each in statement.iter_vars:
        known.bind(each.var, each.dom)
    read = max(statement.reads, key=lambda each: _bytes(each.source), default=None)
    if read is None or not read.region or _bytes(read.source) < _bytes(statement.writes[0].source):
        return None
    along = known.simplify(read.region[-1].min)
    places = [place for place, each in enumerate(variables[:-1]) if along.same_as(each)]
    extents = [int(schedule.get(loop).extent) for loop in schedule.get_loops(block)]
    return places[0] if places and extents[-1] > 1 and max(divisors(extents[places[0]], _TILE)) > 1 else None


def _transpose(schedule: Any, block: Any, crossed: int, machine: Machine) -> None:
    """Map tiles, of which every line of a cache that is read is used whole before it is lost."""
    loops = schedule.get_loops(block)
    others = [loop for place, loop in enumerate(loops[:-1]) if place != crossed]
    turned = _turned(schedule, block, crossed, machine)
    rows, columns = turned or (max(divisors(int(schedule.get(loops[place]).extent), _TILE)) for place in (crossed, -1))
    outer_row, row = schedule.split(loops[crossed], [None, rows])
    outer_column, column = schedule.split(loops[-1], [None, columns])
    if turned:
        schedule.reorder(*others, outer_row, outer_column, column, row)
        keep_in_registers(schedule, column, row)
        return
    schedule.reorder(*others, outer_row, outer_column, row, column)
    if columns >= _FEWEST_LANES:
        schedule.vectorize(column)


def _turned(schedule: Any, block: Any, crossed: int, machine: Machine) -> tuple[int, int] | None:
    """Return the rows and columns of tiles with vectors along the input; None if those along the output are better.

    Each is one load, and LLVM turns several of them in registers to store vectors; vectors along the output are
    gathered. But rows that lie in one set of the first cache drive each other out of it, and what else is read along
    the output would be gathered.
    """
    extents = [int(schedule.get(loop).extent) for loop in schedule.get_loops(block)]
    rows = vector_width(extents[crossed], machine.lanes)
    columns = _TURNED if extents[-1] % _TURNED == 0 else max(divisors(extents[-1], _TILE))
    in_one_set = rows == machine.lanes and math.prod(extents[crossed + 1 :]) % _SET == 0
    statement = schedule.get(block)
    column, written = statement.iter_vars[-1].var, _bytes(statement.writes[0].source)
    is_alone = not any(
        read.region and read.region[-1].min.same_as(column) and _bytes(read.source) >= written
        for read in statement.reads
    )
    return (rows, columns) if min(rows, columns) >= _FEWEST_LANES and is_alone and not in_one_set else None


def _run_in_parallel(schedule: Any, block: Any, machine: Machine) -> None:
    if not _is_worth_threads(schedule, block, machine):
        return
    spatial: list[Any] = []
    for loop in schedule.get_loops(block):
        # Vectorized and reduction loops stay inside.
        if schedule.get(loop).kind != tirx.ForKind.SERIAL or len(spatial) == _spatial_count(schedule, block):
            break
        spatial.append(loop)
    # Indices of fused loops are quotients and remainders: keep these divisions out of the innermost loop.
    if len(spatial) == len(schedule.get_loops(block)) and _steps(schedule, spatial[:-1]) >= machine.threads:
        spatial.pop()
    if spatial:
        schedule.parallel(schedule.fuse(*spatial))


def _spatial_count(schedule: Any, block: Any) -> int:
    count = 0
    for variable in schedule.get(block).iter_vars:
        if variable.iter_type != tirx.IterVar.DataPar:
            break
        count += 1
    return count


def _is_worth_threads(schedule: Any, block: Any, machine: Machine) -> bool:
    fewest = _SUMMED_IN_A_LANE * machine.lanes if _is_reduction(schedule, block) else WORTH_THREADS
    return machine.threads > 1 and _steps(schedule, schedule.get_loops(block)) >= fewest


def _blocks(schedule: Any) -> list[Any]:
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def _is_reduction(schedule: Any, block: Any) -> bool:
    return any(variable.iter_type == tirx.IterVar.CommReduce for variable in schedule.get(block).iter_vars)


def _branches(schedule: Any, block: Any) -> bool:
    # TVM 0.27 has no Python visitor of tensor programs.
    return "if_then_else" in schedule.get(block).body.script()


def _gathers(schedule: Any, block: Any) -> bool:
    """Return whether a block reads numbers at places from a table, which LLVM vectorizes better."""
    return any("[" in str(read.region[-1].min) for read in schedule.get(block).reads if read.region)


def _rearranges(schedule: Any, block: Any) -> bool:
    """Return whether indices of a block are quotients or remainders, as in a reshaping."""
    return "%" in schedule.get(block).body.script()


def _reduces_contiguous_axis(schedule: Any) -> bool:
    """Return whether a reduction of a single tensor runs along its last axis, as in softmax and layer norm."""
    for block in _blocks(schedule):
        statement = schedule.get(block)
        if not _is_reduction(schedule, block) or len(statement.reads) != 1:
            continue
        last = statement.reads[0].region[-1].min
        reduced = [each.var for each in statement.iter_vars if each.iter_type == tirx.IterVar.CommReduce]
        if any(last.same_as(variable) for variable in reduced):
            return True
    return False


def reduces(module: Any) -> bool:
    """Return whether a module of one function contains a reduction."""
    [(_, function)] = module.functions_items()
    if function.body.block.name_hint != "root":
        # A call of TVM's sorting, and nothing else.
        return False
    schedule = s_tir.Schedule(module)
    return any(_is_reduction(schedule, block) for block in _blocks(schedule))
