"""What was found out a moment ago, by key; of many keys the latest."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Told = TypeVar("Told")


class Kept(Generic[Told]):
    """For several threads at once."""

    def __init__(self, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[float, Told]] = OrderedDict()

    def get(self, key: str) -> Told | None:
        """None once its seconds are over."""
        with self._lock:
            until, told = self._found.get(key, (0.0, None))
            return told if self._clock() < until else None

    def put(self, key: str, told: Told, seconds: float) -> None:
        with self._lock:
            self._found[key] = (self._clock() + seconds, told)
            self._found.move_to_end(key)
            if len(self._found) > self._most:
                self._found.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
