"""Ansor's workloads: subgraphs by their key, ``["md5", sizes…]``, and as text that a fresh process can take up.

The key names a graph of tensor expressions without containing it; TVM keeps the graphs of a process in a registry.
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
    """The input and output tensors of a known workload as TVM's JSON."""
    return str(SaveJSON(WORKLOAD_FUNC_REGISTRY[workload_key]))


def register(workload_key: str, text: str) -> None:
    """Make a workload known by its definition, in place of another of the same key: keys leave out dtypes.

    So a float16 pooling has the key of the float32 one. Schedules of one fit the other; only latencies differ.
    Raises EngineFailure ``unknown_workload`` when they do not belong together.
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
    """The ``auto_scheduler.SearchTask`` of a known workload inside a network.

    Its weights lie as its schedule wants them: they are constants, which ``AutoSchedulerLayoutRewrite`` rearranges
    while the network is built.
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
    """The ``te.Schedule`` and the argument tensors that a native line stands for."""
    known = task(workload_key, text, target, threads)
    recorded, _ = auto_scheduler.measure_record.load_record_from_string(line)
    schedule, arguments = known.compute_dag.apply_steps_from_state(
        recorded.state, layout_rewrite=known.layout_rewrite_option
    )
    return schedule, arguments


def digest(workload_key: str, steps: Any) -> str:
    """sha256 of a workload and the transform steps of a schedule, without target and measurement."""
    return hashlib.sha256(json.dumps([workload_key, steps], separators=(",", ":")).encode()).hexdigest()


def flop(dag: Any) -> float:
    """Floating-point operations; where TVM cannot count them (pooling by division), the elements read."""
    counted = float(dag.flop_ct)
    return counted if counted > 0 else float(max(math.prod(_shape(tensor)) for tensor in dag.tensors))


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The operator that the rest of a subgraph surrounds."""

    name: str
    """``conv2d_nhwc``, ``dense``, ``pool_max``"""
    inputs: list[tuple[int, ...]]
    """Shapes of the subgraph's inputs that it works on: data and weights, no biases."""


def anchor(dag: Any) -> Anchor:
    summing = [each for each in dag.ops if isinstance(each, tvm.te.ComputeOp) and len(each.reduce_axis)]
    # The last sum is the product itself where a transform of the data (Winograd's) adds up too.
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
    """For people: ``conv2d+add+relu 1×16×16×3 ∗ 3×3×3×8 → 1×16×16×8``."""
    inputs, output = ["×".join(map(str, shape)) or "1" for shape in anchor(dag).inputs], _shape(dag.tensors[-1])
    return f"{operators} {' ∗ '.join(inputs)} → {'×'.join(map(str, output)) or '1'}"
