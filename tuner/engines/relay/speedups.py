"""Two corrections to TVM 0.19 without which compiling takes twice as long."""

from __future__ import annotations

import functools

import tvm
from tvm import autotvm
from tvm.relay.backend import te_compiler

_BIG_CORES = 1
_config_threadpool = tvm.get_global_func("runtime.config_threadpool")


def install() -> None:
    """Memoize ``tvm.support.libinfo``: building a small network asks 2600 times, at 7 ms each, what never changes."""
    if not hasattr(tvm.support.libinfo, "cache_info"):
        tvm.support.libinfo = functools.lru_cache(maxsize=1)(tvm.support.libinfo)
        # te_compiler holds a reference of its own.
        te_compiler.libinfo = tvm.support.libinfo
    autotvm.GLOBAL_SCOPE.silent = True


def use_threads(threads: int) -> None:
    """Let TVM's pool run ``threads`` threads.

    Call with 1 before compiling: while constants fold, the pool's idle threads spin in sched_yield and take the other
    cores from the compiler (61 s instead of 40 s for a small network on two cores).
    """
    _config_threadpool(_BIG_CORES, threads)
