"""Seconds that each node of a model takes in ONNX Runtime."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import onnxruntime

from tuner.engines.protocol.messages import Json
from tuner.engines.reference import arrays, sessions

_KERNEL = "_kernel_time"


def layers(path: str, inputs: str, threads: int, repeat: int) -> list[Json]:
    """In the order of execution, after ONNX Runtime's own fusions; each one's least seconds over ``repeat`` runs.

    Raises EngineFailure ``invalid_model`` and ``invalid_inputs``.
    """
    fed = arrays.load(inputs)
    with tempfile.TemporaryDirectory(prefix="tunesmith-profile-") as folder:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = sessions.open_session(path, threads=threads, options=options)
        for _ in range(repeat + 1):
            sessions.run(session, fed)
        events = json.loads(Path(session.end_profiling()).read_text())
    found: dict[str, Json] = {}
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith(_KERNEL):
            continue
        name = event["name"].removesuffix(_KERNEL)
        seconds = event["dur"] * 1e-6
        shapes = json.dumps(event["args"].get("input_type_shape", []))
        layer = found.setdefault(
            name, {"name": name, "operator": event["args"]["op_name"], "shapes": shapes, "seconds": seconds}
        )
        layer["seconds"] = min(layer["seconds"], seconds)
    return list(found.values())
