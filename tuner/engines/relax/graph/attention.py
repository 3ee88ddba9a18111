"""Attention whose scores stay in the cache, for builds that may be rewritten.

The scores of a head are a matrix of queries by keys, which one product writes, the softmax reads and writes, and the
next product reads. Where they are larger than the cache, one function computes all three for a block of queries at a
time, as FlashAttention does (Dao et al., arXiv:2205.14135), but for whole rows, whose sums need no correction.

The module contains, in this order: which calls are such an attention; the pass that joins them; the schedule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from tuner.engines.relax.graph import calls, joining
from tuner.engines.relax.machines import (
    CACHE_BYTES,
    Machine,
    Tile,
    divisors,
    keep_in_registers,
    own_loops,
    space,
    sum_in_registers,
)

JOINED = "chained_attention_matmul"
"""What the names of functions that compute an attention begin with, see ``tuner.results.in_network``."""
_SHARES = "softmax_shares"
"""Name of the softmax's last block, see ``relax.rows``."""
_PRODUCT, _SOFTMAX = re.compile(r"(fused_)?matmul"), re.compile(r"_?softmax_?\d*")
_FEWEST_BYTES = 16 * CACHE_BYTES
"""Of all scores: fewer stay in a core's second cache anyway."""
_MOST_BYTES = CACHE_BYTES
"""Of a block's scores and their shares."""
_FEWEST_ROWS = 24
"""Of a block: keys and values are read from the second cache for each of them."""
_VECTORS = (2, 3)
"""Vectors of keys in a tile, one of which has to divide the keys."""
_SUMS = 4
"""Blocks that sum up or compare: two products, maxima and sums of rows."""


def _attentions(module: Any, function: Any, machine: Machine) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the calls of each attention: of a product, a softmax and a product."""
    values = {each.var: each.value for each in calls.bindings(function)}
    uses = calls.uses(function)

    def before(call: Any, name: re.Pattern[str]) -> Any | None:
        """Return the call that alone gives the first argument of another, if nothing else reads it."""
        given = call.args[1].fields[0]
        value = values.get(given)
        return value if uses[given] == 1 and joining.calls_function(value, name) else None

    for last in values.values():
        softmax = before(last, _SOFTMAX) if joining.calls_function(last, _PRODUCT) else None
        scores = before(softmax, _PRODUCT) if softmax is not None else None
        if (
            softmax is not None
            and scores is not None
            and _pays(scores, last, machine)
            and _is_of_rows(module[softmax.args[0]])
        ):
            yield scores, softmax, last


def _is_of_rows(softmax: Any) -> bool:
    """Return whether a tensor function is a softmax along the last axis, as ``relax.rows`` computes it."""
    steps = _Steps(s_tir.Schedule(tvm.IRModule({"main": softmax})), None)
    if steps.names[-1] != _SHARES:
        return False
    *_, inverse, shares = steps.shapes()
    return [*shares[:-1], 1] == inverse


def _pays(scores: Any, last: Any, machine: Machine) -> bool:
    made, mixed = calls.sizes(scores), calls.sizes(last)
    if made is None or mixed is None or made[:-1] != mixed[:-1] or len(made) < 2:
        return False
    *_, rows, columns = made
    is_large = 4 * math.prod(made) >= _FEWEST_BYTES
    # A tile of single vectors would load as much as it multiplies.
    has_tiles = any(columns % (vectors * machine.lanes) == 0 for vectors in _VECTORS)
    return is_large and has_tiles and bool(_rows(rows, columns))


def _rows(rows: int, columns: int) -> list[int]:
    """Return how many rows may be in a block."""
    most = _MOST_BYTES // (2 * 4 * columns)
    return [each for each in divisors(rows, most) if each >= _FEWEST_ROWS]


def join(machine: Machine) -> Any:
    """Return the pass that makes one function of the calls of each attention, once operators are fused."""

    def joined(module: Any, _: Any) -> Any:
        found: dict[Any, joining.Steps] = {}
        for _, function in module.functions_items():
            if isinstance(function, relax.Function):
                for scores, softmax, mixed in _attentions(module, function, machine):
                    found[mixed] = [(scores, None), (softmax, 0), (mixed, 0)]
        return joining.join(module, found, lambda _: JOINED)

    return tvm.transform.module_pass(joined, opt_level=0, name="JoinAttention")


def is_joined(schedule: Any) -> bool:
    """Return whether a function computes an attention."""
    steps = _Steps(schedule, None)
    return len(steps.sums) == _SUMS and _SHARES in steps.names


def apply(schedule: Any, machine: Machine) -> Any:
    """Schedule a function that computes an attention."""
    steps = _Steps(schedule, machine)
    return steps.apply(*steps.sizes()[0])


def ways(module: Any, machine: Machine) -> Any | None:
    """Return MetaSchedule's space of such a function, some blocks of rows and tiles; None for others."""
    if _SHARES not in module.script() or not is_joined(s_tir.Schedule(module)):
        return None
    return space(lambda schedule: _Steps(schedule, machine))


class _Steps:
    """The steps of a function that computes an attention, and their schedule."""

    def __init__(self, schedule: Any, machine: Any) -> None:
        self._schedule, self._machine = schedule, machine
        self._blocks = list(schedule.get_child_blocks(schedule.get_sblock("root")))
        self.names = [str(schedule.get(block).name_hint) for block in self._blocks]
        self.sums = [block for block in self._blocks if _reduced(schedule, block)]

    def shapes(self) -> list[list[int]]:
        """Return the shape of each block's result."""
        return [self._shape(block) for block in self._blocks]

    def _shape(self, block: Any) -> list[int]:
        return [int(size) for size in self._schedule.get(block).writes[0].source.shape]

    def sizes(self) -> list[tuple[int, Tile, Tile]]:
        """Return rows of a block and tiles of both products, the best by estimate first."""
        *_, rows, keys = self._shape(self._blocks[self.names.index(_SHARES)])
        columns = self._shape(self._blocks[-1])[-1]
        lanes = self._machine.lanes
        found = []
        for block in _rows(rows, keys):
            first, last = (self._machine.tile(block, wide) for wide in (keys, columns))
            found.append((first.share(lanes) + last.share(lanes), block, first, last))
        return [each[1:] for each in sorted(found, key=lambda each: each[:2], reverse=True)]

    def apply(self, rows: int, first: Tile, last: Tile) -> Any:
        """Schedule blocks of so many rows, with these tiles of the first and of the last product."""
        schedule, (scores, most, total, mixed) = self._schedule, self.sums
        stored, result = self._inline(scores, most), self._inline(mixed, None)
        partial = {each: self._in_lanes(each) for each in (most, total)}
        *outer, row, column = schedule.get_loops(result)
        block, row = schedule.split(row, [None, rows])
        row, high = schedule.split(row, [None, last.rows])
        column, vector, lane = schedule.split(column, [None, last.vectors, last.width])
        schedule.reorder(*outer, block, row, column, high, vector, lane)
        blocks = schedule.fuse(*outer, block)
        if self._machine.threads > 1:
            schedule.parallel(blocks)
        keep_in_registers(schedule, high, vector, lane)
        sum_in_registers(schedule, mixed, column, last.width)
        self._share(blocks, most, total, partial)
        schedule.compute_at(stored, blocks, preserve_unit_loops=True)
        *_, row, column = schedule.get_loops(stored)
        row, high = schedule.split(row, [None, first.rows])
        column, vector, lane = schedule.split(column, [None, first.vectors, first.width])
        # Rows of the block are computed with the same columns, which stay in the first cache.
        schedule.reorder(column, row, high, vector, lane)
        keep_in_registers(schedule, high, vector, lane)
        sum_in_registers(schedule, scores, row, first.width)
        return schedule

    def _inline(self, product: Any, reader: Any) -> Any:
        """Inline what stands between two blocks but for the last one, and return this; a copy if there is none."""
        schedule = self._schedule
        begin, end = (self._blocks.index(each) if each else len(self._blocks) for each in (product, reader))
        between = self._blocks[begin + 1 : end]
        for block in between[:-1]:
            schedule.compute_inline(block)
        return between[-1] if between else schedule.cache_write(product, 0, "global")

    def _in_lanes(self, block: Any) -> Any:
        """Return the block that sums up the numbers in each lane of a row's vectors, or compares them."""
        schedule = self._schedule
        _, lane = schedule.split(schedule.get_loops(block)[-1], [None, self._machine.lanes])
        partial = schedule.rfactor(lane, factor_axis=len(schedule.get(block).writes[0].region))
        schedule.set_scope(partial, 0, "local")
        return partial

    def _share(self, blocks: Any, most: Any, total: Any, partial: dict[Any, Any]) -> None:
        """Compute the softmax row by row, at the loop ``blocks``."""
        schedule, lanes = self._schedule, self._machine.lanes
        exponentials, inverse, shares = (
            self._blocks[self.names.index(f"softmax_{name}")] for name in ("exp", "inverse", "shares")
        )
        schedule.compute_at(shares, blocks, preserve_unit_loops=True)
        *_, row, _ = schedule.get_loops(shares)
        for block in (inverse, total, partial[total], exponentials, most, partial[most]):
            schedule.compute_at(block, row, preserve_unit_loops=True)
        for block in (most, total):
            spatial, [reduced] = own_loops(schedule, partial[block])
            lane = max(spatial, key=lambda loop: int(schedule.get(loop).extent))
            schedule.reorder(reduced, lane)
            schedule.vectorize(lane)
            schedule.decompose_reduction(partial[block], reduced)
            schedule.unroll(own_loops(schedule, block)[1][0])
        for block in (exponentials, shares):
            schedule.vectorize(schedule.split(schedule.get_loops(block)[-1], [None, lanes])[1])


def _reduced(schedule: Any, block: Any) -> bool:
    return any(each.iter_type == tirx.IterVar.CommReduce for each in schedule.get(block).iter_vars)
