"""How much memory a stage of a job may use, which follows from the model.

TVM and its search need some memory for any model; weights and tensors add a multiple of what one run of the model with
ONNX Runtime needed (``Prepared.memory_bytes``). Decision 0052 has the measured peaks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from domain.jobs import Stage
from domain.targets import Target, kind_of

_SEARCHING, _RUNNING = 6 * 1024**3, 3 * 1024**3
_FOR_ANY_MODEL: Mapping[Stage, int] = {
    Stage.TUNE: _SEARCHING,
    Stage.VERIFY: _RUNNING,
    Stage.BENCHMARK: _RUNNING,
}
_COMPILING = 4 * 1024**3
"""Of all other stages."""
_FOR_EACH_CORE = 64 * 1024**2
"""Stacks and heaps of threads, which libraries start for each core."""


def limit(stage: Stage, model_bytes: int | None, target: Target) -> int | None:
    """Return the limit in bytes of one process; None if only the settings limit it.

    ``model_bytes`` is None if it is unknown. Drivers of GPUs reserve memory that has nothing to do with the model.
    """
    if model_bytes is None or kind_of(target.text) != "llvm":
        return None
    return _FOR_ANY_MODEL.get(stage, _COMPILING) + (os.cpu_count() or 1) * _FOR_EACH_CORE + model_bytes
