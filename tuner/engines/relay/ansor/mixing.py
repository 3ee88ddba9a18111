"""Ansor's schedules in builds of AutoTVM: for the operators that no template of AutoTVM computes.

TVM's own switch for Ansor, ``relay.backend.use_auto_scheduler``, turns AutoTVM's choice of implementations off. Here
the switch stays off, and the schedule of every fused function is first looked up among Ansor's records, by the graph of
its tensor expressions. So a build has the operators and the layouts that it has without these records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import auto_scheduler, autotvm, relay
from tvm.auto_scheduler.relay_integration import traverse_to_get_io_tensors
from tvm.auto_scheduler.workload_registry import register_workload_tensors
from tvm.relay.backend import te_compiler

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import compiling, importing
from tuner.engines.relay.ansor import networks, records
from tuner.engines.runtime import faults, progress

Find = Callable[[Any, Any], Any]
"""``find(outs, target)``: the ``te.Schedule`` of a fused function's outputs, or None for the implementation's own."""
_original = te_compiler.lower_call
_find: Find | None = None


def install() -> None:
    """Let builds in this process look schedules up; idempotent. To be called before the first build."""
    tvm.register_func("relay.backend.lower_call", _lower_call, override=True)


def _lower_call(call: Any, inputs: Any, target: Any, otype: Any = None) -> Any:
    lowered = _original(call, inputs, target, otype)
    if _find is None:
        return lowered
    return te_compiler.LoweredOutput(lowered.outputs, _looking(lowered.implementation, _find))


def _looking(implementation: Any, find: Find) -> Any:
    """Return the ``OpImplementation`` that schedules what ``find`` does not."""

    def schedule(attrs: Any, outs: Any, target: Any) -> Any:
        found = find(outs, target)
        if found is not None:
            return found
        with target:
            return implementation.schedule(attrs, outs, target)

    strategy = relay.op.OpStrategy()
    strategy.add_implementation(_computed, schedule, name=implementation.name, plevel=implementation.plevel)
    return strategy.specializations[0].implementations[0]


def _computed(*_: Any) -> Any:
    raise AssertionError("the outputs were computed before the schedule was looked up")


@contextmanager
def _finding(find: Find) -> Iterator[None]:
    global _find
    before, _find = _find, find
    try:
        yield
    finally:
        _find = before


@contextmanager
def applying(best: Mapping[str, records.Record], used: set[str]) -> Iterator[None]:
    """Build with these records, by workload key; ``used`` gets the keys of those that the build needed."""
    used.clear()
    if not best:
        yield
        return

    def find(outs: Any, target: Any) -> Any:
        subgraph = _subgraph(outs)
        record = best.get(subgraph.workload_key()) if subgraph is not None else None
        # Constants are folded for another target.
        if record is None or subgraph is None or not records.same_target(record.target, target):
            return None
        schedule, _ = subgraph.apply_steps_from_state(record.measured.state)
        used.add(record.workload_key)
        return schedule

    with _finding(find):
        yield


def _subgraph(outs: Any) -> Any | None:
    """Return the ``ComputeDAG`` of a fused function; None if it is AutoTVM's, or Ansor cannot schedule it."""
    if autotvm.task.get_workload(outs) is not None:
        return None
    tensors, has_free_layouts, _ = traverse_to_get_io_tensors(list(outs))
    if not tensors or has_free_layouts or not _is_computed(outs) or any(map(_may_be_index, tensors[: -len(outs)])):
        return None
    try:
        return auto_scheduler.ComputeDAG(tensors)
    except tvm.TVMError:
        return None


def _may_be_index(tensor: Any) -> bool:
    """Whether a tensor's values may be positions in another one, which those of a measurement would exceed."""
    return str(tensor.dtype).startswith(("int", "uint")) and str(tensor.dtype) != "uint1"


def _is_computed(outs: Sequence[Any]) -> bool:
    """Whether all is written as tensor expressions; sorting is not, for example."""
    left, seen = list(outs), set()
    while left:
        operation = left.pop().op
        if isinstance(operation, tvm.te.PlaceholderOp) or operation.handle.value in seen:
            continue
        if not isinstance(operation, tvm.te.ComputeOp):
            return False
        seen.add(operation.handle.value)
        left += operation.input_tensors
    return True


def extract(imported: importing.Imported, target: Any, pairs: Sequence[Any], out_dir: str | None) -> list[Json]:
    """Return the tasks of the network as it is built with AutoTVM's ``pairs``, most work first.

    Writes each one's definition to ``out_dir`` if given.
    """
    return networks.tasks(_found(imported, target, pairs), target, out_dir, lambda description, _: description)


def register_all(imported: importing.Imported, target: Any, pairs: Sequence[Any]) -> None:
    """Register every workload that ``extract`` would find."""
    _found(imported, target, pairs)


def _found(imported: importing.Imported, target: Any, pairs: Sequence[Any]) -> dict[str, tuple[int, str]]:
    """Return, by workload key, how often the network runs it, and a description."""
    found: dict[str, tuple[int, str]] = {}
    with compiling.dispatch(list(pairs)):
        every = compiling.fused(compiling.optimized(imported, target))
        # The others compute nothing.
        counts = [each for each in every if "relay.reshape_only" not in each[0].attrs]
        progress.begin("extract", sum(len(compiling.operators(function)) for function, _ in counts))
        # It would not ask for schedules that it knows.
        te_compiler.get().clear()
        for function, count in counts:
            key = _lowered(function, target)
            if key is not None:
                before = found[key][0] if key in found else 0
                found[key] = (before + count, _describe(function))
    te_compiler.get().clear()
    return found


def _lowered(function: Any, target: Any) -> str | None:
    """Return the workload key of a fused function, registered; None if it is none of Ansor's."""
    keys: list[str] = []

    def note(outs: Any, _: Any) -> None:
        subgraph = _subgraph(outs)
        if subgraph is not None:
            key = str(subgraph.workload_key())
            register_workload_tensors(key, list(subgraph.tensors))
            keys.append(key)

    with _finding(note), faults.reported("compile_failed", "TVM cannot extract tasks"), target:
        te_compiler.get().lower(function, target)
    return keys[0] if len(keys) == 1 else None


def _describe(function: Any) -> str:
    """Return a readable description with all arguments, used or not, and results: ``mean 4×196×64 → 4×196×1``."""
    given = [shape for parameter in function.params for shape in _shapes(parameter.checked_type)]
    names = [name.removeprefix("nn.").removeprefix("contrib_") for name in compiling.operators(function)]
    return f"{'+'.join(names)} {' ∗ '.join(given)} → {' ∗ '.join(_shapes(function.ret_type))}"


def _shapes(kind: Any) -> list[str]:
    if isinstance(kind, relay.TupleType):
        return [shape for field in kind.fields for shape in _shapes(field)]
    return ["×".join(str(int(size)) for size in kind.shape) or "1"]
