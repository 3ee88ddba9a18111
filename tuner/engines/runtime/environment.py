"""Process settings that must stand before TVM, its thread pool or OpenMP is loaded; and when threads came to rest."""

from __future__ import annotations

import os
import time

_LOOK_SECONDS = 0.01
_IDLE_SHARE = 0.1
_LONGEST_SECONDS = 2.0


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settings(tvm_threads: int) -> dict[str, str]:
    """Environment variables for this process (``tvm_threads`` = all cores) or a child of its own.

    TVM's pool never grows past ``TVM_NUM_THREADS``, and its default is half of the cores. Waiting OpenMP threads
    spin unless told otherwise: XGBoost then trains ten times slower. A download from TopHub would stall offline.
    TVM's idle threads spin for 300,000 turns, some 170 ms, which slows whoever builds or measures next; within a
    network the next parallel loop comes after microseconds, so a tenth changes nothing there.
    """
    return {
        "TVM_NUM_THREADS": str(tvm_threads),
        "TVM_THREAD_POOL_SPIN_COUNT": "30000",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "OPENBLAS_NUM_THREADS": "1",
        "TOPHUB_LOCATION": "NONE",
    }


def apply() -> None:
    os.environ.update(settings(cores()))


def settle() -> None:
    """Leave the machine quiet for the next measurement: return when no thread of this process computes any more.

    Thread pools spin for a while after their last work, waiting for more: TVM's for 170 ms on the machine where this
    was found. Whatever another process measured meanwhile, on the same cores, came out up to four times too slow.
    """
    ends = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < ends:
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < _LOOK_SECONDS * _IDLE_SHARE:
            return
