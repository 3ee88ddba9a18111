"""Seconds that each fused operator of compiled files takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tvm
from tvm.contrib.debugger.debug_executor import GraphModuleDebug

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import corrections
from tuner.engines.relay.release import RELEASE
from tuner.engines.relay.running import Network
from tuner.engines.runtime.running import assemble, load_library

_PREFIX = "tvmgen_default_"


def layers(bundle: str, inputs: str | None, threads: int, repeat: int) -> list[Json]:
    """In the order of execution; each one's least seconds over ``repeat`` runs of the network.

    Uses ``tvm.runtime.profiling``, which adds about a microsecond to each operator. Raises EngineFailure
    ``invalid_bundle`` and ``invalid_inputs``.
    """
    corrections.use_threads(threads)
    folder = Path(bundle)
    network = assemble(lambda: Network(folder, load_library(RELEASE, folder), tvm.cpu(0), create=_debugger))
    network.feed_file(inputs)
    reports = [json.loads(network.executor.profile().json())["calls"] for _ in range(repeat)]
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
