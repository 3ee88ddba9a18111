"""Guard pages crash a process that accesses memory beyond an array."""

from __future__ import annotations

import pytest

from tests.support.tuner.engines import asking

pytestmark = pytest.mark.engine

BEYOND = """
import ctypes, os, signal
import numpy as np
from tuner.engines.runtime import guard_pages

def crashes(address):
    child = os.fork()
    if child == 0:
        ctypes.string_at(address, 1)
        os._exit(0)
    return os.waitpid(child, 0)[1] & 0x7F == signal.SIGSEGV

for shape in ((), (0,), (3, 5), (1024,), (2, 1025)):
    given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for at_end in (False, True):
        made = guard_pages.copy(given, at_end=at_end)
        assert (made.tobytes(), made.shape, made.dtype) == (given.tobytes(), given.shape, given.dtype)
        first = made.ctypes.data
        assert first % 64 == 0
        beyond = first + -(-given.nbytes // 64) * 64 if at_end else first - 1
        assert crashes(beyond) and not (given.nbytes and crashes(first)), (shape, at_end)
"""


def test_access_beyond_an_array_crashes_the_process() -> None:
    asking.python("onnx", "-c", BEYOND)
