"""The schedule of an untuned build, and the schedules that keep its memory layout."""

from __future__ import annotations

import itertools
from typing import Any

from tvm.autotvm.task.space import FallbackConfigEntity, SplitEntity

_LAYOUT_KNOBS = ("tile_ic", "tile_oc")
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
    more than the operators gain (SqueezeNet: 6.0 ms tuned, 4.7 ms untuned). None: the template has no such blocks, so
    every schedule keeps the layout.
    """
    space = task.config_space
    if "NCHWc" not in task.name or default is None:
        return None
    kept = space.point2knob(default)
    choices = [
        [kept[axis]] if name in _LAYOUT_KNOBS else range(size)
        for axis, (name, size) in enumerate(zip(space.space_map, space.dims, strict=True))
    ]
    places = (int(space.knob2point(list(knob))) for knob in itertools.product(*choices))
    return frozenset(place for place in places if space.is_index_valid(place))
