"""The schedule of an untuned build, and the schedules that keep its memory layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from tvm.autotvm.task.space import FallbackConfigEntity, SplitEntity
from tvm.target.x86 import get_simd_32bit_lanes

LAYOUT_KNOBS = ("tile_ic", "tile_oc")
"""Knobs of the NCHWc templates that also decide how channels are blocked in memory, including between operators."""


def index(task: Any) -> int | None:
    """Return the index of the untuned build's schedule in the search space; None if it lies outside."""
    untuned = fallback(task)
    knob = []
    for name, space in task.config_space.space_map.items():
        wanted = _knob(untuned[name])
        position = next((each for each in range(len(space)) if _knob(space[each]) == wanted), None)
        if position is None:
            return None
        knob.append(position)
    place = int(task.config_space.knob2point(knob))
    return place if task.config_space.is_index_valid(place) else None


def fallback(task: Any) -> Any:
    """Return the ``FallbackConfigEntity`` of an untuned build."""
    config = FallbackConfigEntity()
    with task.target:
        task.instantiate(config)
    return config


def _knob(entity: Any) -> str:
    # A split in the search space leaves its outermost factor open (-1); the fallback's computes it.
    return str(entity.size[1:]) if isinstance(entity, SplitEntity) else str(entity)


def same_layout(task: Any) -> frozenset[int] | None:
    """Return the schedules whose inputs and outputs are laid out as in an untuned build.

    None if the template does not block channels, so that every schedule keeps the layout.

    Neighbours that are tuned separately end up with different blocks, and the layout transforms between them cost what
    the operators gain. On PP-OCR's text direction network, one thread of a Zen 3, medians: untuned 1.63 ms; the best of
    24 trials per task in the whole space 1.40 ms, of 16 in the untuned layout 0.94 ms (ONNX Runtime 1.62 ms).
    """
    return _restricted(task, lambda block, _: {block})


def consistent(task: Any) -> frozenset[int] | None:
    """Return the schedules whose blocks neighbours can agree on: ``same_layout`` plus ``sensible_blocks``.

    Apart from the untuned ones, these blocks depend on the number of channels only, so both operators beside a tensor
    try the same ones; a build then decides for the whole graph (``graph_layout``). None if the template does not block
    channels.
    """
    with task.target:
        lanes = int(get_simd_32bit_lanes())
    found = _restricted(task, lambda block, channels: sensible_blocks(channels, block, lanes))
    if found is None or not task.name.startswith("depthwise"):
        return found
    # Each output channel has one input channel; with two block sizes vectors are gathered, 2 to 10 times as slow.
    return frozenset(place for place in found if _blocks_once(task, place)) | (same_layout(task) or frozenset())


def sensible_blocks(channels: int, untuned: int, lanes: int) -> set[int]:
    """Return the channel blocks worth trying for a tensor with ``channels`` channels.

    An untuned build's output block is the largest divisor of the channels that fits a vector of ``lanes``: 12 of 24
    channels, 11 of 88. If it does not fill half vectors, these are tried as well: on a Zen 4, 8 instead of 12 was 1.3
    times as fast, instead of 10 1.4 times. Its input block, ``untuned``, depends on its output block: 8 of 32 for 200.
    """
    half = max(1, lanes // 2)
    given = next(block for block in range(lanes, 0, -1) if channels % block == 0)
    return {untuned, given, half} if given % half and channels % half == 0 else {untuned, given}


def _blocks_once(task: Any, place: int) -> bool:
    entities = task.config_space.get(place)._entity_map
    return len({int(entities[knob].size[-1]) for knob in LAYOUT_KNOBS if knob in entities}) == 1


def searched(task: Any) -> int:
    """Return the number of schedules in the ``consistent`` part of the search space."""
    kept = consistent(task)
    return len(task.config_space) if kept is None else len(kept)


def _restricted(task: Any, allowed: Callable[[int, int], set[int]]) -> frozenset[int] | None:
    """Return a blocked template's schedules with blocks in ``allowed(untuned block, channels)``, else None."""
    if "NCHWc" not in task.name:
        return None
    space, untuned = task.config_space, fallback(task)
    choices: list[Iterable[int]] = []
    for name, size in zip(space.space_map, space.dims, strict=True):
        choices.append(range(size))
        if name in LAYOUT_KNOBS:
            split = space.space_map[name]
            blocks = allowed(int(untuned[name].size[-1]), split.product)
            choices[-1] = [place for place in range(size) if int(split[place].size[-1]) in blocks]
    places = (int(space.knob2point(list(knob))) for knob in itertools.product(*choices))
    return frozenset(place for place in places if space.is_index_valid(place))
