"""Time of each node of a model in ONNX Runtime, by its own profiler."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from tuner.engines.onnx import arrays, sessions
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import running, weights

_KERNEL = "_kernel_time"
"""End of the name of the event with the time of a node; other events have that of its barriers."""
_RUN = "model_run"
_Shape = Sequence[int]


def profile(path: str, inputs: str, threads: int, repeat: int) -> Json:
    """Return ``{seconds, layers}``: ``running.quick_mean`` of ``repeat`` runs, and of each node in as many other runs.

    The two kinds of runs take turns, in two sessions. The layers are the nodes after fusion, in order of execution:
    ``name``, ``operator``, ``seconds``, shapes of ``inputs``, weights among them, and ``outputs``, and ``flop``, the
    floating-point operations of convolutions and products, else None. Raises EngineFailure ``invalid_model``,
    ``invalid_inputs`` or ``run_failed``.
    """
    fed = arrays.load(inputs)
    plain = sessions.cached(path, threads)
    whole: list[float] = []
    with tempfile.TemporaryDirectory(prefix="tunesmith-profile-") as folder:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        # Beside the other session, one that is opened from a path would parse all weights once more.
        profiled = sessions.open_session(weights.read(Path(path)), threads=threads, options=options)
        sessions.run(profiled, fed)
        for _ in range(repeat):
            whole += sessions.sample(plain, fed, number=1, repeat=1)
            sessions.run(profiled, fed)
        events = json.loads(Path(profiled.end_profiling()).read_text())
    [seconds] = running.quick_mean([[each] for each in whole])
    return {"seconds": seconds, "layers": _layers(events, seconds)}


def _layers(events: Iterable[Json], whole: float) -> list[Json]:
    found: dict[str, Json] = {}
    runs: list[dict[str, float]] = [{}]
    # A run begins before its nodes, perhaps in the same microsecond.
    for event in sorted(events, key=lambda each: (each.get("ts", 0), each.get("name") != _RUN)):
        if event.get("name") == _RUN:
            runs.append({})
        if event.get("cat") != "Node" or not event["name"].endswith(_KERNEL):
            continue
        name, facts = event["name"].removesuffix(_KERNEL), event["args"]
        # Nodes of loops run several times.
        runs[-1][name] = runs[-1].get(name, 0.0) + event["dur"] * 1e-6
        if name not in found:
            read, written = _shapes(facts.get("input_type_shape")), _shapes(facts.get("output_type_shape"))
            layer = {"name": name, "operator": facts["op_name"], "inputs": read, "outputs": written}
            found[name] = {**layer, "flop": _flop(facts["op_name"], read, written)}
    # The first run of a session is slower, and the list begins with what is before it.
    means = running.quick_mean([[run.get(name, 0.0) for name in found] for run in runs[2:]])
    times = running.without_profiler(means, whole)
    return [{**layer, "seconds": seconds} for layer, seconds in zip(found.values(), times, strict=True)]


def _shapes(told: Any) -> list[list[int]]:
    """``told`` is a list of ``{type: shape}``."""
    return [[int(size) for size in shape] for entry in told or [] for shape in entry.values()]


def _flop(operator: str, read: Sequence[_Shape], written: Sequence[_Shape]) -> float | None:
    if not read or not written:
        return None
    data, result = read[0], written[0]
    weights = read[1] if len(read) > 1 else ()
    if operator in ("Conv", "FusedConv") and len(weights) > 2:
        return 2.0 * math.prod(result) * math.prod(weights[1:])
    if operator == "ConvTranspose" and len(weights) > 2:
        return 2.0 * math.prod(data) * math.prod(weights[1:])
    if operator in ("MatMul", "FusedMatMul", "Gemm", "FusedGemm") and data:
        # The shape of prepacked weights is not told.
        return 2.0 * math.prod(result) * data[-1]
    return None
