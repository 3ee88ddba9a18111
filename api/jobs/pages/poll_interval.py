"""How often browsers that look again and again should come: the more they are, the more seldom."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

_WINDOW_SECONDS = 60.0
_SECONDS_A_BROWSER = 0.24
"""All together come four times a second at most."""


class PollInterval:
    """Nobody counts browsers: how many there are is told by how often they come, and how long they were to wait."""

    def __init__(self, *, least: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = least
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = least
        self._polls: deque[tuple[float, float]] = deque()
        self._waited = 0.0

    def poll(self) -> float:
        """Called for each look; returns after how many seconds that browser should look again."""
        with self._lock:
            now = self._clock()
            self._polls.append((now, self._pause))
            self._waited += self._pause
            while self._polls[0][0] <= now - _WINDOW_SECONDS:
                self._waited -= self._polls.popleft()[1]
            browsers = self._waited / _WINDOW_SECONDS
            # Not beyond what is counted: who comes more seldom could not be told from who has left.
            self._pause = min(max(self._least, _SECONDS_A_BROWSER * browsers), _WINDOW_SECONDS)
            return self._pause
