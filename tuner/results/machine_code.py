"""Machine code as functions, for measurements that a compiler must not change and that need no compiler."""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable


def function(code: bytes, arguments: int = 1) -> Callable[..., None]:
    """Return x86-64 code in System V's calling convention as a function of integers, which releases Python's lock.

    Raises OSError on another processor, or where memory may not be made executable.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise OSError(f"no machine code for {platform.machine()}")
    memory = mmap.mmap(-1, max(len(code), mmap.PAGESIZE), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    start = ctypes.c_char.from_buffer(memory)
    called = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * arguments)(ctypes.addressof(start))

    def run(*given: int, _memory: object = start) -> None:
        called(*given)

    return run
