"""Entry point of the openvino engine: ``python -m tuner.engines.openvino --event-fd N``.

It runs bundles, and the models of candidates for one, as users of OpenVINO do, and times the layers of models.
"""

from __future__ import annotations

import sys

import openvino

from tuner.engines.openvino import profiling
from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import running

HANDLERS = {
    **running.handlers(),
    "profile": lambda params, _: profiling.profile(
        params["path"], params["inputs"], params["threads"], params["repeat"]
    ),
}


def _hello() -> Json:
    toolchain = {"engine": "openvino", "openvino": openvino.__version__.partition("-")[0]}
    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return {
        "engine": "openvino",
        "toolchain": toolchain,
        "methods": sorted(HANDLERS),
        "precisions": ["f32", *(["bf16"] if "BF16" in able else [])],
    }


if __name__ == "__main__":
    sys.exit(serving.serve(HANDLERS, _hello))
