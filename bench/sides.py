"""What a benchmark compares, each in a process of its own: ``python -m bench.sides --event-fd N``.

A side is a ``kind`` and a ``bundle``: ``library`` (a ``libmodel.so``), ``session`` (an unpacked bundle in the runtime
that its manifest names), and ``onnxruntime``, ``openvino f32`` or ``openvino default`` (a model). ``openvino default``
computes in the precision that OpenVINO chooses for this CPU. ``run`` and ``time`` have the parameters of the library
engine's; ``mix`` runs some of the ``requests``, each of its own shapes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import environment

Arrays = Mapping[str, Any]
_SEVERITY_ERROR = 3
_OPENVINO = {
    # Beside weights of 8 bits, f32 alone would leave it to round activations to 8 bits.
    "openvino f32": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0},
    "openvino default": {},
}


@dataclass(frozen=True, kw_only=True)
class Opened:
    run: Callable[[Arrays], Mapping[str, Any]]
    sample: Callable[[Arrays, int, int], Sequence[float]]
    """Seconds per run for inputs, ``number`` and ``repeat``, after a warm-up run. Only the network is timed."""


def _session(path: str, threads: int, runtime: str | None) -> Opened:
    from tunesmith.runtime import InferenceSession

    session = InferenceSession(path, threads=threads, runtime=runtime)
    names = [output.name for output in session.get_outputs()]
    return Opened(
        run=lambda arrays: dict(zip(names, session.run(None, arrays), strict=True)),
        sample=lambda arrays, number, repeat: session.time(arrays, number=number, repeat=repeat),
    )


def _onnxruntime(path: str, threads: int) -> Opened:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _SEVERITY_ERROR
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return Opened(
        run=lambda arrays: dict(zip(names, session.run(None, dict(arrays)), strict=True)),
        sample=lambda arrays, number, repeat: _looped(lambda: session.run(None, arrays), number, repeat),
    )


def _openvino(path: str, threads: int, hints: Mapping[str, str]) -> Opened:
    import openvino

    core = openvino.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads, **hints}
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()

    def once(arrays: Arrays) -> Any:
        # Data are not copied, as on the other sides.
        return request.infer(dict(arrays), share_inputs=True, share_outputs=True)

    return Opened(
        run=lambda arrays: {port.get_any_name(): value for port, value in once(arrays).items()},
        sample=lambda arrays, number, repeat: _looped(lambda: once(arrays), number, repeat),
    )


def _looped(once: Callable[[], object], number: int, repeat: int) -> list[float]:
    once()
    samples = []
    for _ in range(repeat):
        started = time.perf_counter()
        for _ in range(number):
            once()
        samples.append((time.perf_counter() - started) / number)
    return samples


_before: dict[str, int] = {}
"""Bytes of memory before the runtime was imported."""


@lru_cache(maxsize=1)
def _opened(kind: str, path: str, threads: int) -> Opened:
    _before.setdefault("bytes", _peak_bytes())
    if kind in ("library", "session"):
        return _session(path, threads, "library" if kind == "library" else None)
    return _onnxruntime(path, threads) if kind == "onnxruntime" else _openvino(path, threads, _OPENVINO[kind])


def _side(params: Json) -> Opened:
    return _opened(params["kind"], params["bundle"], params["threads"])


def _inputs(params: Json) -> Arrays:
    with np.load(params["inputs"], allow_pickle=False) as arrays:
        return dict(arrays)


def _open(params: Json, _: serving.Emitter) -> Json:
    """Return the seconds from the import of the runtime to the first result, and the most memory so far."""
    inputs = _inputs(params)
    started = time.perf_counter()
    _side(params).run(inputs)
    return {"seconds": time.perf_counter() - started, "peak_bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """Unlike ``ru_maxrss``, without the memory of the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def _run(params: Json, _: serving.Emitter) -> Json:
    np.savez(params["outputs"], **_side(params).run(_inputs(params)))
    return {}


def _time(params: Json, _: serving.Emitter) -> Json:
    samples = _side(params).sample(_inputs(params), params["number"], params["repeat"])
    environment.settle()
    return {"samples": list(samples)}


def _tokens(name: str, shape: Sequence[int], vocabulary: int, generator: Any) -> Any:
    """Ids of tokens; ones for a mask, and zeros for types."""
    if "type" in name or "mask" in name:
        return np.full(shape, int("mask" in name))
    return generator.integers(0, vocabulary, shape)


def _mix(params: Json, _: serving.Emitter) -> Json:
    """Return the seconds of requests of different shapes, each as a program sees it: with its output arrays."""
    generator, vocabulary = np.random.default_rng(params["first"]), params["vocabulary"]
    given = [
        {
            name: _tokens(name, shape, vocabulary, generator) if vocabulary else generator.random(shape, np.float32)
            for name, shape in shapes.items()
        }
        for shapes in params["requests"][params["first"] : params["first"] + params["count"]]
    ]
    run, seconds = _side(params).run, []
    for arrays in given:
        started = time.perf_counter()
        run(arrays)
        seconds.append(time.perf_counter() - started)
    environment.settle()
    return {"seconds": seconds}


def _describe(params: Json, _: serving.Emitter) -> Json:
    """Return the bytes of a bundle's library, its weights and each entry point's arena."""
    from tunesmith import archives
    from tunesmith.runtime import loading

    description = loading.load(params["bundle"]).description.contents
    with Path(params["bundle"]).open("rb") as file:
        size = next(member.size for member in archives.members(file) if member.name == loading.LIBRARY)
    arenas = [description.entries[place].arena_bytes for place in range(description.entry_count)]
    return {"library": size, "weights": description.weight_bytes, "arenas": arenas}


def _hello() -> Json:
    return {"engine": "sides", "toolchain": {"engine": "sides"}, "methods": sorted(HANDLERS)}


HANDLERS: dict[str, serving.Handler] = {
    "open": _open,
    "run": _run,
    "time": _time,
    "mix": _mix,
    "describe": _describe,
    "peak": lambda _params, _: {"bytes": _peak_bytes(), "grown": _peak_bytes() - _before["bytes"]},
}

if __name__ == "__main__":
    sys.exit(serving.serve(HANDLERS, _hello))
