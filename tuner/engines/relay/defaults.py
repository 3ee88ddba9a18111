"""The schedule of an untuned build, and the schedules that keep its memory layout."""

from __future__ import annotations

import itertools
from typing import Any

from tvm.autotvm.task.space import FallbackConfigEntity, SplitEntity

LAYOUT_KNOBS = ("tile_ic", "tile_oc")
"""In the NCHWc templates these also decide how channels are blocked in memory, between operators too."""


def index(task: Any) -> int | None:
    """The place in the search space of the schedule that an untuned build uses; None when it lies outside."""
    fallback = FallbackConfigEntity()
    with task.target:
        task.instantiate(fallback)
    knob = []
    for name, space in task.config_space.space_map.items():
        wanted = _knob(fallback[name])
        position = next((each for each in range(len(space)) if _knob(space[each]) == wanted), None)
        if position is None:
            return None
        knob.append(position)
    place = int(task.config_space.knob2point(knob))
    return place if task.config_space.is_index_valid(place) else None


def _knob(entity: Any) -> str:
    # A split of the search space leaves its outermost factor open (-1), the fallback's computes it.
    return str(entity.size[1:]) if isinstance(entity, SplitEntity) else str(entity)


def same_layout(task: Any, default: int | None) -> frozenset[int] | None:
    """The schedules whose inputs and outputs lie in memory as in an untuned build.

    Neighbours that are tuned each for itself end up with other blocks, and the layout transforms between them cost
    what the operators gain. On PP-OCR's text direction network, one thread of a Zen 3, medians: untuned 1.63 ms, the
    best of 24 trials a task in the whole space 1.40 ms, of 16 in the untuned layout 0.94 ms (ONNX Runtime 1.62 ms).
    None: the template has no such blocks, so every schedule keeps the layout.
    """
    space = task.config_space
    if "NCHWc" not in task.name or default is None:
        return None
    kept = space.point2knob(default)
    choices = [
        [kept[axis]] if name in LAYOUT_KNOBS else range(size)
        for axis, (name, size) in enumerate(zip(space.space_map, space.dims, strict=True))
    ]
    places = (int(space.knob2point(list(knob))) for knob in itertools.product(*choices))
    return frozenset(place for place in places if space.is_index_valid(place))


def searched(task: Any) -> int:
    """The number of schedules that a search in the untuned build's layout can choose from."""
    kept = same_layout(task, index(task))
    return len(task.config_space) if kept is None else len(kept)
