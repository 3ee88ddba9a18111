"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    """Raises AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
