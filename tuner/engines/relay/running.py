"""Execution and timing of compiled files with the graph executor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.contrib import graph_executor

from tuner.engines.protocol.messages import Json
from tuner.engines.relay.compiling import GRAPH, PARAMS
from tuner.engines.relay.release import RELEASE
from tuner.engines.runtime import compiling, running


class Network(running.Network):
    def __init__(self, folder: Path, library: Any, device: Any) -> None:
        text = (folder / GRAPH).read_text()
        params = tvm.runtime.load_param_dict((folder / PARAMS).read_bytes())
        graph = json.loads(text)
        self.executor = graph_executor.create(text, library, device)
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
    load=lambda folder, library: Network(folder, library, tvm.cpu(0)),
    load_remotely=lambda folder, session, library: Network(folder, library, session.cpu(0)),
)
