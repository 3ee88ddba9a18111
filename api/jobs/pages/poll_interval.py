"""Polling interval of browsers, which grows with their number."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

_WINDOW_SECONDS = 60.0
_SECONDS_A_BROWSER = 0.24
"""Interval per browser, for at most about four polls per second in total."""


class PollInterval:
    """Computes the interval from the estimated number of browsers: polls in a window, times their intervals."""

    def __init__(self, *, least: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = least
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = least
        self._polls: deque[tuple[float, float]] = deque()
        self._waited = 0.0

    def poll(self) -> float:
        """Count a poll, and return the seconds until that browser should poll again."""
        with self._lock:
            now = self._clock()
            self._polls.append((now, self._pause))
            self._waited += self._pause
            while self._polls[0][0] <= now - _WINDOW_SECONDS:
                self._waited -= self._polls.popleft()[1]
            browsers = self._waited / _WINDOW_SECONDS
            # At most the window: a longer interval could not be distinguished from a browser that left.
            self._pause = min(max(self._least, _SECONDS_A_BROWSER * browsers), _WINDOW_SECONDS)
            return self._pause
