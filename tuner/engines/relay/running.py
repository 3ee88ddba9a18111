"""Execution and timing of compiled files with the graph executor."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.contrib import graph_executor
from tvm.contrib.debugger.debug_executor import GraphModuleDebug

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import corrections
from tuner.engines.relay.compiling import GRAPH, PARAMS
from tuner.engines.relay.release import RELEASE
from tuner.engines.runtime import compiling, running
from tuner.engines.runtime.running import assemble, load_library


class Network(running.Network):
    def __init__(
        self, folder: Path, library: Any, device: Any, create: Callable[[str, Any, Any], Any] = graph_executor.create
    ) -> None:
        """``create`` makes an executor from a graph, its library and the device on which the library was loaded."""
        text = (folder / GRAPH).read_text()
        params = tvm.runtime.load_param_dict((folder / PARAMS).read_bytes())
        graph = json.loads(text)
        self.executor = create(text, library, device)
        self.executor.load_params(tvm.runtime.save_param_dict(params))
        self._device = device
        names = [graph["nodes"][position]["name"] for position in graph["arg_nodes"]]
        self.inputs = [_spec(name, self.executor.get_input(name)) for name in names if name not in params]
        count = self.executor.get_num_outputs()
        self.outputs = graph.get("metadata", {}).get("outputs") or [f"output_{i}" for i in range(count)]

    def feed(self, arrays: running.Arrays) -> None:
        for name, array in arrays.items():
            self.executor.set_input(name, array)

    def run(self) -> Sequence[Any]:
        self.executor.run()
        return [self.executor.get_output(place).numpy() for place in range(len(self.outputs))]

    def sample(self, number: int, repeat: int) -> list[float]:
        timer = self.executor.module.time_evaluator("run", self._device, number=number, repeat=repeat)
        return [float(seconds) for seconds in timer().results]


def _spec(name: str, array: Any) -> Json:
    return {"name": name, "dtype": str(array.dtype), "shape": [int(size) for size in array.shape]}


BUNDLES = running.Bundles(
    RELEASE,
    (compiling.LIBRARY, GRAPH, PARAMS),
    load=lambda folder: Network(folder, running.load_library(RELEASE, folder), tvm.cpu(0)),
    load_remotely=lambda folder, session, library: Network(folder, library, session.cpu(0)),
)


_PREFIX = "tvmgen_default_"


def layers(bundle: str, inputs: str | None, threads: int, repeat: int) -> list[Json]:
    """Return the operators in execution order, each with its minimum seconds over ``repeat`` runs of the network.

    Uses ``tvm.runtime.profiling``, which adds about a microsecond to each operator. Raises EngineFailure
    ``invalid_bundle`` or ``invalid_inputs``.
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
