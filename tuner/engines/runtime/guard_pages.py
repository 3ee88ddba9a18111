"""Arrays between guard pages: code that accesses memory beyond an array crashes.

Ordinary arrays lie beside other memory of the process, which hides such errors. The technique is that of Electric Fence
(B. Perens, 1987).
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


def zeros(shape: Sequence[int], dtype: Any, *, at_end: bool) -> Any:
    """Return an array of zeros that starts right after a guard page, or ends within 64 bytes of one.

    Raises OSError if the system refuses to protect a page.
    """
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
    """Return a copy of an array, placed as by ``zeros``."""
    made = zeros(array.shape, array.dtype, at_end=at_end)
    made[...] = array
    return made


def _protect(page: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), _INACCESSIBLE):
        raise OSError(ctypes.get_errno(), "mprotect failed")
