"""Threads that do the same at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 8
R = TypeVar("R")


def at_once(action: Callable[[int], R]) -> list[R]:
    """Return what the action returns for each number in threads that start together."""
    start = threading.Barrier(THREADS)

    def run(number: int) -> R:
        start.wait()
        return action(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))
