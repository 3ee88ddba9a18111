"""The schedule of an untuned build, and the schedules that keep its memory layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from tvm.autotvm.task.space import FallbackConfigEntity, SplitEntity
from tvm.target.x86 import get_simd_32bit_lanes

LAYOUT_KNOBS = ("tile_ic", "tile_oc")
"""In the NCHWc templates these also decide how channels are blocked in memory, between operators too."""


def index(task: Any) -> int | None:
    """The place in the search space of the schedule that an untuned build uses; None when it lies outside."""
    fallback = _fallback(task)
    knob = []
    for name, space in task.config_space.space_map.items():
        wanted = _knob(fallback[name])
        position = next((each for each in range(len(space)) if _knob(space[each]) == wanted), None)
        if position is None:
            return None
        knob.append(position)
    place = int(task.config_space.knob2point(knob))
    return place if task.config_space.is_index_valid(place) else None


def _fallback(task: Any) -> Any:
    fallback = FallbackConfigEntity()
    with task.target:
        task.instantiate(fallback)
    return fallback


def _knob(entity: Any) -> str:
    # A split of the search space leaves its outermost factor open (-1), the fallback's computes it.
    return str(entity.size[1:]) if isinstance(entity, SplitEntity) else str(entity)


def same_layout(task: Any) -> frozenset[int] | None:
    """The schedules whose inputs and outputs lie in memory as in an untuned build.

    Neighbours that are tuned each for itself end up with other blocks, and the layout transforms between them cost
    what the operators gain. On PP-OCR's text direction network, one thread of a Zen 3, medians: untuned 1.63 ms, the
    best of 24 trials a task in the whole space 1.40 ms, of 16 in the untuned layout 0.94 ms (ONNX Runtime 1.62 ms).
    None: the template has no such blocks, so every schedule keeps the layout.
    """
    return _restricted(task, lambda block, _: {block})


def consistent(task: Any) -> frozenset[int] | None:
    """The schedules whose blocks neighbours can agree on: those of ``same_layout``, and of ``sensible_blocks``.

    Beside those of the untuned schedule these depend on nothing but the number of channels, so both operators beside
    a tensor try the same; a build then decides for the graph as a whole (``graph_layout``). None as there.
    """
    with task.target:
        lanes = int(get_simd_32bit_lanes())
    found = _restricted(task, lambda block, channels: sensible_blocks(channels, block, lanes))
    if found is None or not task.name.startswith("depthwise"):
        return found
    # Each output channel has one input channel: with two blocks vectors are gathered, 2 to 10 times as slow.
    return frozenset(place for place in found if _blocks_once(task, place)) | (same_layout(task) or frozenset())


def sensible_blocks(channels: int, untuned: int, lanes: int) -> set[int]:
    """An untuned build gives the largest divisor of the channels that a vector of ``lanes`` holds: of 24 channels 12,
    of 88 eleven. Where that fills no half vectors they are tried as well: on a Zen 4, eight for twelve were 1.3 times
    as fast, for ten 1.4 times. What it takes is ``untuned``, which depends on what it gives: 8 of 32 for 200.
    """
    half = max(1, lanes // 2)
    given = next(block for block in range(lanes, 0, -1) if channels % block == 0)
    return {untuned, given, half} if given % half and channels % half == 0 else {untuned, given}


def _blocks_once(task: Any, place: int) -> bool:
    entities = task.config_space.get(place)._entity_map
    return len({int(entities[knob].size[-1]) for knob in LAYOUT_KNOBS if knob in entities}) == 1


def searched(task: Any) -> int:
    """The number of schedules that a search in ``consistent`` blocks can choose from."""
    kept = consistent(task)
    return len(task.config_space) if kept is None else len(kept)


def _restricted(task: Any, allowed: Callable[[int, int], set[int]]) -> frozenset[int] | None:
    """Of a blocked template the schedules with blocks in ``allowed(untuned block, channels)``."""
    if "NCHWc" not in task.name:
        return None
    space, fallback = task.config_space, _fallback(task)
    choices: list[Iterable[int]] = []
    for name, size in zip(space.space_map, space.dims, strict=True):
        choices.append(range(size))
        if name in LAYOUT_KNOBS:
            split = space.space_map[name]
            blocks = allowed(int(fallback[name].size[-1]), split.product)
            choices[-1] = [place for place in range(size) if int(split[place].size[-1]) in blocks]
    places = (int(space.knob2point(list(knob))) for knob in itertools.product(*choices))
    return frozenset(place for place in places if space.is_index_valid(place))
