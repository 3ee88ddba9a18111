"""Workload keys: AutoTVM workloads as text, and back."""

from __future__ import annotations

import json
from typing import Any

from tvm import autotvm

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import soundness


def key(task: Any) -> str:
    """Independent of model and target: the task's name and arguments, as in AutoTVM's own record lines."""
    return json.dumps([task.name, task.args], separators=(",", ":"))


def task(workload_key: str, target: Any) -> Any:
    """The ``autotvm.task.Task`` of a key, with its search space. Raises EngineFailure ``unknown_workload``."""
    try:
        name, arguments = json.loads(workload_key)
        return create(name, _tuples(arguments), target)
    except Exception as error:
        # Templates raise anything for arguments that are not theirs.
        raise EngineFailure("unknown_workload", f"no template takes {workload_key[:200]}: {error}"[:1500]) from error


def create(name: str, arguments: tuple[Any, ...], target: Any) -> Any:
    """An ``autotvm.task.Task`` whose search space holds sound schedules only."""
    task = autotvm.task.create(name, arguments, target=target)
    soundness.restrict(task)
    return task


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def describe(task: Any) -> str:
    """For people: ``conv2d 1×3×224×224 ∗ 64×3×7×7 /2``."""
    name = task.name.split(".")[0].replace("_NCHWc", "").replace("depthwise_", "depthwise ")
    shapes = [argument[1] for argument in task.args if isinstance(argument, tuple) and argument[:1] == ("TENSOR",)]
    text = f"{name} " + " ∗ ".join("×".join(map(str, shape)) for shape in shapes)
    strides = task.args[2] if "conv" in name and len(task.args) > 2 else None
    if isinstance(strides, tuple) and set(strides) != {1} and all(isinstance(stride, int) for stride in strides):
        text += " /" + "×".join(map(str, strides if len(set(strides)) > 1 else strides[:1]))
    return text
