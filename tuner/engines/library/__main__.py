"""Entry point of the library engine: ``python -m tuner.engines.library --event-fd N``.

It runs the libraries of compiled builds with numpy alone, as their users do: nothing of TVM shares their process. With
the parameter ``runtime`` it runs bundles in ONNX Runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import running

_libraries = running.Libraries()


def _hello() -> Json:
    return {"engine": "library", "toolchain": {"engine": "library"}, "methods": sorted(HANDLERS)}


def _load(params: Json) -> Callable[[str, int], running.Network]:
    return _libraries.load_model if params.get("runtime") == "onnxruntime" else _libraries.load


HANDLERS: dict[str, serving.Handler] = {
    "run": lambda params, _: running.run(_load(params), params),
    "time": lambda params, _: running.time(_load(params), params),
    "profile": lambda params, _: running.profile(_libraries.load, params),
}

if __name__ == "__main__":
    sys.exit(serving.serve(HANDLERS, _hello))
