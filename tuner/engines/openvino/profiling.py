"""Time of each layer of a model in OpenVINO, by its own performance counters."""

from __future__ import annotations

import time
from typing import Any

import openvino

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import running
from tunesmith.runtime import open_vino

_ORIGINALS = "originalLayersNames"
"""Names in the model of what a layer computes, separated by commas."""
_NORMALIZATION = "MVN"


def profile(path: str, inputs: str, threads: int, repeat: int) -> Json:
    """Return ``{seconds, layers}``: ``running.quick_mean`` of ``repeat`` runs, and of each layer in as many other runs.

    The two kinds of runs take turns, in two sessions, both in float32. The layers are those after fusion that ran, in
    order of execution: ``name``, ``operator``, ``seconds`` (counted in whole microseconds), ``originals``, the names of
    the model's nodes that a layer computes and of their outputs, and shapes of ``inputs``, weights among them, and
    ``outputs``. Raises EngineFailure ``invalid_model``, ``invalid_inputs`` or ``run_failed``.
    """
    model = _model(path)
    plain, counted = (_opened(model, threads, counts=counts) for counts in (False, True))
    fed = running.read(inputs)
    whole: list[float] = []
    runs: list[dict[str, float]] = []
    try:
        # The first run of a session also allocates.
        for session in (plain, counted):
            session.infer(fed)
        for _ in range(repeat):
            whole.append(_seconds(plain, fed))
            counted.infer(fed, share_inputs=True, share_outputs=True)
            runs.append(
                {
                    each.node_name: each.real_time.total_seconds()
                    for each in counted.get_profiling_info()
                    if each.status == each.EXECUTED
                }
            )
    except Exception as error:  # Errors of its C++ code come as RuntimeError and others.
        raise EngineFailure("run_failed", f"OpenVINO cannot run the model: {error}"[:1500]) from error
    kinds = {each.node_name: each.node_type for each in counted.get_profiling_info()}
    layers = [
        {**layer, "operator": kinds[layer["name"]]}
        for layer in _layers(counted, model)
        if any(layer["name"] in run for run in runs)
    ]
    means = running.quick_mean([[run.get(layer["name"], 0.0) for layer in layers] for run in runs])
    [seconds] = running.quick_mean([[each] for each in whole])
    times = running.without_profiler(means, seconds)
    return {
        "seconds": seconds,
        "layers": [{**layer, "seconds": each} for layer, each in zip(layers, times, strict=True)],
    }


def _model(path: str) -> Any:
    try:
        return openvino.Core().read_model(path)
    except Exception as error:  # As above.
        raise EngineFailure("invalid_model", f"OpenVINO cannot read the model: {error}"[:1500]) from error


def _opened(model: Any, threads: int, *, counts: bool) -> Any:
    settings = {**open_vino.settings(threads, counts=counts), "INFERENCE_PRECISION_HINT": "f32"}
    try:
        return openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    except Exception as error:  # As above.
        raise EngineFailure("invalid_model", f"OpenVINO cannot compile the model: {error}"[:1500]) from error


def _seconds(session: Any, fed: dict[str, Any]) -> float:
    started = time.perf_counter()
    session.infer(fed, share_inputs=True, share_outputs=True)
    return time.perf_counter() - started


def _layers(session: Any, model: Any) -> list[Json]:
    """Return what the compiled model says of its layers, in order of execution."""
    outputs = {
        each.get_friendly_name(): [name for output in each.outputs() for name in output.get_names()]
        for each in model.get_ops()
    }
    compiled = session.get_compiled_model().get_runtime_model()
    found = []
    for each in sorted(compiled.get_ordered_ops(), key=lambda layer: int(_fact(layer, "execOrder") or 0)):
        names = _originals(each)
        found.append(
            {
                "name": each.get_friendly_name(),
                "originals": [*names, *(output for name in names for output in outputs.get(name, ()))],
                "inputs": _shapes(each.inputs()),
                "outputs": _shapes(each.outputs()),
            }
        )
    return found


def _originals(layer: Any) -> list[str]:
    found = [name for name in _fact(layer, _ORIGINALS).split(",") if name]
    if _fact(layer, "layerType") == _NORMALIZATION:
        # It computes most of a LayerNormalization, whose name the layer after it has.
        followers = [each.get_node() for output in layer.outputs() for each in output.get_target_inputs()]
        found += [name for each in followers for name in _fact(each, _ORIGINALS).split(",") if name]
    return found


def _fact(layer: Any, name: str) -> str:
    known = layer.get_rt_info()
    return str(known[name].astype(str)) if name in known else ""


def _shapes(ports: Any) -> list[list[int]]:
    return [list(each.get_shape()) for each in ports]
