"""Ansor workloads: subgraphs by key, ``["md5", sizes…]``, and as text that a new process can load.

A key identifies a graph of tensor expressions but does not contain it; TVM keeps the graphs in a per-process registry.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler.compute_dag import LayoutRewriteOption
from tvm.auto_scheduler.workload_registry import WORKLOAD_FUNC_REGISTRY, register_workload_tensors
from tvm.runtime._ffi_node_api import LoadJSON, SaveJSON

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import targets


def is_known(workload_key: str) -> bool:
    return workload_key in WORKLOAD_FUNC_REGISTRY


def definition(workload_key: str) -> str:
    """Return the input and output tensors of a registered workload as TVM's JSON."""
    return str(SaveJSON(WORKLOAD_FUNC_REGISTRY[workload_key]))


def register(workload_key: str, text: str) -> None:
    """Register a workload by its definition, replacing another one with the same key.

    Keys leave out dtypes, so a float16 pooling has the key of the float32 one. Their schedules are interchangeable;
    only latencies differ.

    Raises EngineFailure ``unknown_workload`` if key and definition do not match.
    """
    if is_known(workload_key) and definition(workload_key) == text:
        return
    try:
        tensors = list(LoadJSON(text))
        key = str(auto_scheduler.ComputeDAG(tensors).workload_key())
    except Exception as error:
        # TVMError, ValueError or TypeError, depending on what is wrong with the text.
        raise EngineFailure("unknown_workload", f"not a workload definition: {error}"[:1000]) from error
    if json.loads(key) != json.loads(workload_key):
        raise EngineFailure("unknown_workload", f"the definition belongs to {key[:300]}, not to {workload_key[:300]}")
    register_workload_tensors(workload_key, tensors)


def search_task(workload_key: str, target: Any) -> Any:
    """Return the ``auto_scheduler.SearchTask`` of a registered workload inside a network.

    Its weights are laid out as the schedule wants: they are constants, which ``AutoSchedulerLayoutRewrite`` rearranges
    when the network is built.
    """
    cores = int(target.attrs.get("num-cores", 1))
    return auto_scheduler.SearchTask(
        workload_key=workload_key,
        target=target,
        hardware_params=auto_scheduler.HardwareParams(num_cores=cores, target=target),
        layout_rewrite_option=LayoutRewriteOption.get_target_default(target, True),
    )


@lru_cache(maxsize=64)
def task(workload_key: str, text: str, target: str, threads: int) -> Any:
    register(workload_key, text)
    return search_task(workload_key, targets.resolve(target, threads))


def replay(workload_key: str, text: str, line: str, target: str, threads: int) -> tuple[Any, Any]:
    """Return the ``te.Schedule`` and the argument tensors of a native line."""
    known = task(workload_key, text, target, threads)
    recorded, _ = auto_scheduler.measure_record.load_record_from_string(line)
    schedule, arguments = known.compute_dag.apply_steps_from_state(
        recorded.state, layout_rewrite=known.layout_rewrite_option
    )
    return schedule, arguments


def digest(workload_key: str, steps: Any) -> str:
    """Return the sha256 of a workload and a schedule's transform steps, without target and measurement."""
    return hashlib.sha256(json.dumps([workload_key, steps], separators=(",", ":")).encode()).hexdigest()


def flop(dag: Any) -> float:
    """Return the floating-point operations, or the elements read if TVM cannot count them (pooling by division)."""
    counted = float(dag.flop_ct)
    return counted if counted > 0 else float(max(math.prod(_shape(tensor)) for tensor in dag.tensors))


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The main operator of a subgraph."""

    name: str
    """``conv2d_nhwc``, ``dense`` or ``pool_max``, for example."""
    inputs: list[tuple[int, ...]]
    """Shapes of the subgraph inputs that it operates on: data and weights, no biases."""


def anchor(dag: Any) -> Anchor:
    summing = [each for each in dag.ops if isinstance(each, tvm.te.ComputeOp) and len(each.reduce_axis)]
    # The last reduction is the product itself; a transform of the data (Winograd's) may contain reductions too.
    operator = summing[-1] if summing else dag.ops[-1]
    return Anchor(name=str(operator.tag or operator.name), inputs=_sources(operator))


def _sources(operator: Any) -> list[tuple[int, ...]]:
    shapes = []
    for tensor in operator.input_tensors:
        if isinstance(tensor.op, tvm.te.PlaceholderOp):
            shapes.append(_shape(tensor))
        else:
            shapes += _sources(tensor.op)
    return shapes


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in tensor.shape)


def describe(operators: str, dag: Any) -> str:
    """Return a readable description: ``conv2d+add+relu 1×16×16×3 ∗ 3×3×3×8 → 1×16×16×8``."""
    inputs, output = ["×".join(map(str, shape)) or "1" for shape in anchor(dag).inputs], _shape(dag.tensors[-1])
    return f"{operators} {' ∗ '.join(inputs)} → {'×'.join(map(str, output)) or '1'}"
