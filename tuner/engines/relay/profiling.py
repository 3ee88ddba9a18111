"""Seconds that each fused operator of compiled files takes."""

from __future__ import annotations

import json
from typing import Any

import tvm
from tvm.contrib.debugger.debug_executor import GraphModuleDebug

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import running, speedups

_PREFIX = "tvmgen_default_"


def layers(bundle: str, inputs: str | None, threads: int, repeat: int) -> list[Json]:
    """In the order of execution; each one's least seconds over ``repeat`` runs of the network.

    Uses ``tvm.runtime.profiling``, which adds about a microsecond to each operator. Raises EngineFailure
    ``invalid_bundle`` and ``invalid_inputs``.
    """
    speedups.use_threads(threads)
    loaded = running.assemble(bundle, lambda: (running.library(bundle), tvm.cpu(0)), executor=_debugger)
    running.feed_or_fill(loaded, inputs)
    reports = [json.loads(loaded.executor.profile().json())["calls"] for _ in range(repeat)]
    return [
        {
            "name": calls[0]["Name"]["string"].removeprefix(_PREFIX),
            "shapes": calls[0]["Argument Shapes"]["string"],
            "seconds": min(call["Duration (us)"]["microseconds"] for call in calls) * 1e-6,
        }
        for calls in zip(*reports, strict=True)
    ]


def _debugger(graph: str, library: Any, device: Any) -> Any:
    create = tvm.get_global_func("tvm.graph_executor_debug.create")
    return GraphModuleDebug(create(graph, library, device.device_type, device.device_id), [device], graph, None)
