"""The engine of ``transcripts/session.txt``."""

from __future__ import annotations

import sys

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import Emitter, EngineFailure


def _hello() -> Json:
    return {
        "engine": "example",
        "toolchain": {"engine": "example", "tvm": "0.19.0", "llvm": "22"},
        "methods": sorted(HANDLERS),
    }


def _add(params: Json, _: Emitter) -> Json:
    return {"sum": params["left"] + params["right"]}


def _count(params: Json, emitter: Emitter) -> Json:
    for step in range(params["to"]):
        emitter.emit("progress", {"step": step + 1})
    return {}


def _refuse(params: Json, _: Emitter) -> Json:
    operators = {"café::Op": 1}
    raise EngineFailure("unsupported_operators", "1 operator cannot be imported", details={"operators": operators})


HANDLERS: dict[str, serving.Handler] = {"add": _add, "count": _count, "refuse": _refuse}

if __name__ == "__main__":
    sys.exit(serving.serve(HANDLERS, _hello))
