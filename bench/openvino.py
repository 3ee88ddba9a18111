"""OpenVINO as an engine that only runs and times, for comparison: ``python -m bench.openvino --event-fd N``.

``time`` and ``run`` accept the parameters of the onnx engine's, and ``precision``: ``f32``, or ``default`` for
OpenVINO's own choice on this CPU.
"""

from __future__ import annotations

import sys
import time
from functools import lru_cache
from typing import Any

import numpy as np
import openvino

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import environment

_HINTS: dict[str, dict[str, str]] = {"f32": {"INFERENCE_PRECISION_HINT": "f32"}, "default": {}}


def _hello() -> Json:
    return {
        "engine": "openvino",
        "toolchain": {"engine": "openvino", "openvino": openvino.__version__},
        "capabilities": list(openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")),
        "methods": sorted(HANDLERS),
    }


@lru_cache(maxsize=4)
def _request(path: str, threads: int, precision: str) -> Any:
    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        **_HINTS[precision],
    }
    return core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()


def _arguments(params: Json) -> tuple[Any, dict[str, Any]]:
    request = _request(params["path"], params["threads"], params.get("precision") or "f32")
    with np.load(params["inputs"], allow_pickle=False) as arrays:
        return request, dict(arrays)


def _run(params: Json, _: serving.Emitter) -> Json:
    request, inputs = _arguments(params)
    outputs = request.infer(inputs)
    np.savez(params["outputs"], **{port.get_any_name(): value for port, value in outputs.items()})
    return {}


def _time(params: Json, _: serving.Emitter) -> Json:
    request, inputs = _arguments(params)
    # Data are not copied, as in the other engines: only the network is timed.
    request.infer(inputs, share_inputs=True, share_outputs=True)
    samples = []
    for _ in range(params["repeat"]):
        started = time.perf_counter()
        for _ in range(params["number"]):
            request.infer(inputs, share_inputs=True, share_outputs=True)
        samples.append((time.perf_counter() - started) / params["number"])
    environment.settle()
    return {"samples": samples}


HANDLERS: dict[str, serving.Handler] = {"run": _run, "time": _time}

if __name__ == "__main__":
    sys.exit(serving.serve(HANDLERS, _hello))
