"""Process that runs a schedule and the untuned default and compares them, for ``auditing``; it may crash."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import auto_scheduler, autotvm
from tvm.auto_scheduler.compute_dag import LayoutRewriteOption
from tvm.autotvm.task.space import FallbackConfigEntity

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import candidates, targets, workloads
from tuner.engines.relay.ansor import workloads as ansor_workloads
from tuner.engines.relay.templates import dispatching
from tuner.engines.runtime import auditing, faults

Instantiate = Callable[[], tuple[Any, Any]]
"""Creates a ``te.Schedule`` and its argument tensors."""
Arrays = list[Any]


class NotBuilt(Exception):
    """The schedule could not be built; the message says why."""


def set_up() -> None:
    candidates.set_up()
    # Templates then accept tensors in the model's layout and pack them themselves. Otherwise no tensor of two schedules
    # with different channel blocks would have the same shape.
    autotvm.GLOBAL_SCOPE.in_tuning = False


@dataclass(frozen=True, kw_only=True)
class _Built:
    library: Any
    tensors: list[Any]
    """``te.Tensor`` of each argument."""

    def run(self, inputs: Arrays) -> Arrays:
        """Run once and return the outputs; ``inputs`` are the values of the placeholders, in order."""
        left = iter(inputs)
        arguments = [tvm.nd.array(next(left) if _is_input(each) else _unwritten(each)) for each in self.tensors]
        self.library(*arguments)
        pairs = zip(arguments, self.tensors, strict=True)
        return [argument.numpy() for argument, tensor in pairs if not _is_input(tensor)]

    @property
    def inputs(self) -> list[Any]:
        return [tensor for tensor in self.tensors if _is_input(tensor)]


def compare_autotvm(line: str, target: str, threads: int) -> Json:
    """Compare a native line's schedule with the default one; returns as described in ``runtime.auditing``."""
    recorded, _ = autotvm.record.decode(line)
    task = workloads.task(workloads.key(recorded.task), targets.resolve(target, threads))
    usual = workloads.create(dispatching.usual(task.name), task.args, task.target)
    tried = ((usual, FallbackConfigEntity()), (task, recorded.config))
    ways = [partial(_instantiate, each, config) for each, config in tried]
    return _compare(ways, task.target, blocked="NCHWc" in task.name)


def _instantiate(task: Any, config: Any) -> tuple[Any, Any]:
    """Return the schedule and its arguments in the workload's order; AutoTVM's is a traversal from the output."""
    schedule, arguments = task.instantiate(config)
    wanted = [(tuple(each[1]), each[2]) for each in task.args if isinstance(each, tuple) and each[:1] == ("TENSOR",)]
    place = {spec: position for position, spec in reversed(list(enumerate(wanted)))}
    return schedule, sorted(arguments, key=lambda each: place.get(_spec(each), -1) if _is_input(each) else -1)


def compare_ansor(workload_key: str, definition: str, line: str, target: str, threads: int) -> Json:
    """Compare an Ansor line with the unscheduled computation; weights keep the model's layout in both."""
    task = ansor_workloads.task(workload_key, definition, target, threads)
    recorded, _ = auto_scheduler.measure_record.load_record_from_string(line)
    states = (task.compute_dag.init_state, recorded.state)
    apply = task.compute_dag.apply_steps_from_state
    return _compare([partial(apply, state, LayoutRewriteOption.NO_REWRITE) for state in states], task.target)


def _compare(ways: Sequence[Instantiate], target: Any, *, blocked: bool = False) -> Json:
    """Run all ``ways`` on the same inputs and compare their outputs; ``blocked`` if their channel blocks may differ."""
    sources: Arrays = []
    outputs = []
    for way in ways:
        try:
            built = _build(way, target)
        except NotBuilt as error:
            return {"failed": faults.text_of(str(error))}
        sources = sources or _random([_spec(tensor) for tensor in built.inputs])
        found = built.run(sources)
        outputs.append([_unblocked(array) for array in found] if blocked else found)
    return _compared(*outputs)


def _build(instantiate: Instantiate, target: Any) -> _Built:
    """Build the schedule. Raises NotBuilt."""
    tensors: list[Any] = []

    def remember() -> tuple[Any, Any]:
        schedule, arguments = instantiate()
        tensors[:] = arguments
        return schedule, arguments

    with tempfile.TemporaryDirectory(prefix="tunesmith-audit-") as folder:
        path = str(Path(folder) / "operator.so")
        error, message = candidates.build_schedule(remember, target, path)
        if error:
            raise NotBuilt(message)
        return _Built(library=tvm.runtime.load_module(path), tensors=tensors)


def _compared(expected: Arrays, actual: Arrays) -> Json:
    if [array.shape for array in expected] != [array.shape for array in actual]:
        return {"skipped": "its output shape differs from that of the untuned build"}
    pairs = zip(expected, actual, strict=True)
    return auditing.worst([auditing.compare(wanted, found) for wanted, found in pairs])


def _unblocked(output: Any) -> Any:
    """Convert NCHWc to NCHW."""
    if output.ndim != 5:
        return output
    batch, chunks, height, width, block = output.shape
    return output.transpose(0, 1, 4, 2, 3).reshape(batch, chunks * block, height, width)


def _random(specs: list[tuple[Any, str]]) -> Arrays:
    generator = np.random.default_rng(0)
    return [auditing.fill(generator, tuple(int(size) for size in shape), dtype) for shape, dtype in specs]


def _unwritten(tensor: Any) -> Any:
    shape, dtype = _spec(tensor)
    return np.full(shape, auditing.UNWRITTEN, dtype)


def _spec(tensor: Any) -> tuple[tuple[int, ...], str]:
    return tuple(int(size) for size in tensor.shape), str(tensor.dtype)


def _is_input(tensor: Any) -> bool:
    return isinstance(tensor.op, tvm.te.PlaceholderOp)


FUNCTIONS: dict[str, Callable[..., Any]] = {"compare_autotvm": compare_autotvm, "compare_ansor": compare_ansor}
