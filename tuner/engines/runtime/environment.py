"""Environment variables that must be set before TVM, its thread pool or OpenMP is loaded, and ``settle``."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
import time

_LIBC = ctypes.CDLL(None)
_LOOK_SECONDS = 0.01
_IDLE_SHARE = 0.1
_LONGEST_SECONDS = 2.0


def cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_bytes() -> int:
    """Return the most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def release() -> None:
    """Free what is left of imports and builds, as TVM's objects are in cycles, and ``trim``."""
    gc.collect()
    trim()


def trim() -> None:
    """Return freed memory to the system, which the C library keeps where blocks have less than 32 MiB."""
    if sys.platform == "linux" and hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def settings(tvm_threads: int) -> dict[str, str]:
    """Return the environment variables for this process (``tvm_threads`` = all cores) or for a child process.

    * ``TVM_NUM_THREADS``: TVM's pool never grows past it, and the default is half of the cores.
    * ``OMP_WAIT_POLICY``: waiting OpenMP threads spin by default, and XGBoost then trains ten times slower.
    * ``TOPHUB_LOCATION``: a download from TopHub would stall offline.
    * ``TVM_THREAD_POOL_SPIN_COUNT``: TVM's idle threads spin for 300,000 turns, about 170 ms, which slows the next
      build or measurement. Within a network the next parallel loop comes after microseconds, so a tenth is enough.
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
    """Wait until no thread of this process uses the CPU any more, for at most ``_LONGEST_SECONDS``.

    Thread pools keep spinning after their last work, TVM's for 170 ms on the machine where this was found. Measurements
    of another process on the same cores were up to four times too slow in that time.
    """
    ends = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < ends:
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < _LOOK_SECONDS * _IDLE_SHARE:
            return
