"""How long the build of a candidate is waited for, by how long others of the same task took."""

from __future__ import annotations

import statistics
from collections import deque

FACTOR = 8.0
"""Of the median: LLVM takes that much longer only for code that unrolling has blown up, which is slow code, too."""
LEAST_SECONDS = 2.0
ENOUGH = 5
"""Builds from which on their median is good for that; of fewer it gets three times the patience."""
_LITTLE = 3.0
_REMEMBERED = 64


class Patience:
    """Seconds that a build may take: what was asked for, or less once most builds are known to be much quicker."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def saw(self, seconds: float) -> None:
        """A build succeeded after so many seconds, or was given up then."""
        self._seconds.append(seconds)

    def limit(self, timeout: float) -> float:
        if not self._seconds:
            return timeout
        doubt = 1.0 if len(self._seconds) >= ENOUGH else _LITTLE
        return min(timeout, doubt * max(LEAST_SECONDS, FACTOR * statistics.median(self._seconds)))
