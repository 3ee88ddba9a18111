"""Process settings that must stand before TVM, its thread pool or OpenMP is loaded."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settings(tvm_threads: int) -> dict[str, str]:
    """Environment variables for this process (``tvm_threads`` = all cores) or a child of its own.

    TVM's pool never grows past ``TVM_NUM_THREADS``, and its default is half of the cores. Waiting OpenMP threads
    spin unless told otherwise: XGBoost then trains ten times slower. TVM's idle threads spin for 300,000 turns, some
    170 ms, which slows whoever builds or measures next.
    """
    return {
        "TVM_NUM_THREADS": str(tvm_threads),
        "TVM_THREAD_POOL_SPIN_COUNT": "30000",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "OPENBLAS_NUM_THREADS": "1",
    }


def apply() -> None:
    os.environ.update(settings(cores()))


def leave_out_intrinsics() -> None:
    """Let ``import tvm.s_tir.tensor_intrin`` find an empty package, whose modules can still be imported one by one.

    TVM imports all of it, for every processor that it knows, before the first search: 11 to 14 s of parsing. Call
    after ``tvm`` is imported; a target imports the modules that its schedules need, see ``targets.load_intrinsics``.
    """
    name = "tvm.s_tir.tensor_intrin"
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.origin is None:
        return
    package = types.ModuleType(name)
    package.__path__ = [str(Path(spec.origin).parent)]
    sys.modules[name] = package
