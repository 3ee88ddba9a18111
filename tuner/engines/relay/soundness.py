"""Schedules in AutoTVM's search spaces that TVM's own templates compute wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Pair = Any
"""``(MeasureInput, MeasureResult)``"""

_GROUPED = "group_conv2d_nchw."
"""Of x86 and of ARM, which share the defect."""


def is_sound(task: Any, config: Any) -> bool:
    """Whether the configuration of an ``autotvm.task.Task`` can be right.

    TVM 0.19 offers tiles of all channels of a grouped convolution, but packs each group alone, in ``depth // tile``
    pieces: what a tile that does not divide the group leaves over is never added up, or comes from other memory. The
    other templates of a CPU are sound: of ``conv2d_NCHWc``, its int8 form, ``depthwise_conv2d_NCHWc``, ``conv3d``,
    ``dense_pack``, ``dense_nopack`` and ``batch_matmul``, random schedules agreed with the default one.
    """
    if not task.name.startswith(_GROUPED):
        return True
    kernel, groups = task.args[1][1], task.args[5]
    tiles = {"tile_ic": kernel[1], "tile_oc": kernel[0] // groups}
    return all(knob in config and channels % int(config[knob].size[-1]) == 0 for knob, channels in tiles.items())


def restrict(task: Any) -> None:
    """Leave only sound configurations valid in the task's search space; its size is then their number.

    As ``ConfigSpace.multi_filter`` does, which does nothing once a template has been traced.
    """
    if task.name.startswith(_GROUPED):
        space = task.config_space
        space.clear_cache()
        space._shared_filter = lambda entities: is_sound(task, entities)


def sound(pairs: Iterable[Pair]) -> list[Pair]:
    """Records of sound schedules, whatever they were measured to take."""
    return [pair for pair in pairs if is_sound(pair[0].task, pair[0].config)]
