"""Leaving the machine quiet for the next measurement."""

from __future__ import annotations

import time

_LOOK_SECONDS = 0.01
_IDLE_SHARE = 0.1
_LONGEST_SECONDS = 2.0


def settle() -> None:
    """Return when no thread of this process computes any more.

    Thread pools spin for a while after their last work, waiting for more: TVM's for 170 ms on the machine where this
    was found. Whatever another process measured meanwhile, on the same cores, came out up to four times too slow.
    """
    ends = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < ends:
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < _LOOK_SECONDS * _IDLE_SHARE:
            return
