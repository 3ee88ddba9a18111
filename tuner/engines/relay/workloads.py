"""AutoTVM workloads by key, excluding the schedules that TVM's own templates compute incorrectly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tvm import autotvm
from tvm.autotvm.task.space import ConfigEntity

from tuner.engines.protocol.serving import EngineFailure


def key(task: Any) -> str:
    """Return a task's name and arguments, as in AutoTVM's record lines; independent of model and target."""
    return json.dumps([task.name, task.args], separators=(",", ":"))


def task(workload_key: str, target: Any) -> Any:
    """Return the ``autotvm.task.Task`` of a key with its search space. Raises EngineFailure ``unknown_workload``."""
    try:
        name, arguments = json.loads(workload_key)
        return create(name, _tuples(arguments), target)
    except Exception as error:
        # Templates raise anything for arguments that do not fit.
        raise EngineFailure("unknown_workload", f"no template supports {workload_key[:200]}: {error}"[:1500]) from error


def create(name: str, arguments: tuple[Any, ...], target: Any) -> Any:
    """Return an ``autotvm.task.Task`` whose search space contains sound schedules only; its size is their number.

    Works like ``ConfigSpace.multi_filter``, which has no effect once a template has been traced.
    """
    task = autotvm.task.create(name, arguments, target=target)
    if name.startswith(_GROUPED):
        task.config_space.clear_cache()
        task.config_space._shared_filter = lambda entities: is_sound(task, entities)
    return task


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def describe(task: Any) -> str:
    """Return a readable description: ``conv2d 1×3×224×224 ∗ 64×3×7×7 /2``."""
    name = task.name.split(".")[0].replace("_NCHWc", "").replace("depthwise_", "depthwise ")
    shapes = [argument[1] for argument in task.args if isinstance(argument, tuple) and argument[:1] == ("TENSOR",)]
    text = f"{name} " + " ∗ ".join("×".join(map(str, shape)) for shape in shapes)
    strides = task.args[2] if "conv" in name and len(task.args) > 2 else None
    if isinstance(strides, tuple) and set(strides) != {1} and all(isinstance(stride, int) for stride in strides):
        text += " /" + "×".join(map(str, strides if len(set(strides)) > 1 else strides[:1]))
    return text


Pair = Any
"""``(MeasureInput, MeasureResult)``."""

_GROUPED = "group_conv2d_nchw."
"""Prefix of the x86 and ARM templates, which share the defect."""


def is_sound(task: Any, config: Any) -> bool:
    """Return whether a configuration of an ``autotvm.task.Task`` computes the right result.

    TVM 0.19 offers tiles of all channels of a grouped convolution but packs each group separately, in ``depth // tile``
    pieces. If a tile does not divide the group, the remainder is never summed, or is read from other memory. The other
    CPU templates are sound: random schedules of ``conv2d_NCHWc``, ``depthwise_conv2d_NCHWc``,
    ``conv3d``, ``dense_pack``, ``dense_nopack`` and ``batch_matmul`` agreed with the default one.
    """
    if not task.name.startswith(_GROUPED):
        return True
    kernel, groups = task.args[1][1], task.args[5]
    tiles = {"tile_ic": kernel[1], "tile_oc": kernel[0] // groups}
    return all(knob in config and channels % int(config[knob].size[-1]) == 0 for knob, channels in tiles.items())


def index_of(space: Any, config: Any) -> int | None:
    """Return the index of a recorded configuration's knobs in a search space, whatever index the record claims.

    None if the space lacks a knob or its value, or excludes the combination.
    """
    recorded = _knobs(config)
    if recorded.keys() != space.space_map.keys():
        return None
    claimed = config.index
    is_place = isinstance(claimed, int) and 0 <= claimed < space.range_length and space.is_index_valid(claimed)
    if is_place and _knobs(space.get(claimed)) == recorded:
        return int(claimed)
    values = []
    for name, options in space.space_map.items():
        known = [_knobs(ConfigEntity(0, None, {name: option}, []))[name] for option in options.entities]
        if recorded[name] not in known:
            return None
        values.append(known.index(recorded[name]))
    index = int(space.knob2point(values))
    return index if space.is_index_valid(index) else None


def _knobs(config: Any) -> dict[str, str]:
    """Return kind and value of each knob as JSON."""
    return {name: json.dumps([kind, value]) for name, kind, value in config.to_json_dict()["entity"]}


def sound(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the records of sound schedules, including failed ones."""
    return [pair for pair in pairs if is_sound(pair[0].task, pair[0].config)]
