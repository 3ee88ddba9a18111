"""Entry point of the library engine: ``python -m tuner.engines.library --event-fd N``.

It runs the libraries of compiled builds with numpy alone, as their users do: nothing of TVM shares their process. With
the parameter ``runtime`` it runs bundles in ONNX Runtime, with ``emulated``, a machine, libraries for that machine.
"""

from __future__ import annotations

import sys
from importlib import metadata

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import emulating, running

HANDLERS = running.handlers(emulated=emulating.load)


def _hello() -> Json:
    # Importing it would take longer than most libraries do to load.
    toolchain = {"engine": "library", "onnxruntime": metadata.version("onnxruntime")}
    methods = sorted(HANDLERS)
    return {"engine": "library", "toolchain": toolchain, "methods": methods, "emulators": emulating.known()}


if __name__ == "__main__":
    sys.exit(serving.serve(HANDLERS, _hello))
