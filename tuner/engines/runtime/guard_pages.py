"""Arrays between guard pages: code that reads or writes beyond an array ends its process there.

Beside an ordinary array there is other memory of the process, so that such code works until it runs elsewhere. The
technique is that of B. Perens, Electric Fence.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

_ALIGNMENT = 64
"""Libraries copy inputs that begin elsewhere."""
_INACCESSIBLE = 0
"""``PROT_NONE``."""


def empty(shape: Sequence[int], dtype: Any, *, at_end: bool) -> Any:
    """Return a new array that begins behind one guard page, or whose last 64 bytes are before the other."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    pages = -(-size // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    end = (pages + 1) * mmap.PAGESIZE
    first = end - -(-size // _ALIGNMENT) * _ALIGNMENT if at_end else mmap.PAGESIZE
    made = np.frombuffer(memory, kind, size // kind.itemsize, first).reshape(shape)
    address = made.ctypes.data - first
    for page in (address, address + end):
        _protect(page)
    return made


def copy(array: Any, *, at_end: bool) -> Any:
    """Return a copy of an array, likewise."""
    made = empty(array.shape, array.dtype, at_end=at_end)
    made[...] = array
    return made


def _protect(page: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), _INACCESSIBLE):
        raise OSError(ctypes.get_errno(), "mprotect failed")
