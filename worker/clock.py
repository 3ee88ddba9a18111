"""The time of day, as the database has it: what hosts' own clocks say decides nothing about leases.

A process takes the database's time with every sign of life and counts on from there by the monotonic clock, which
nobody sets. (SQLite has no time of its own; there the host's is everybody's.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from storage import statements

_JUMP_SECONDS = 2.0
_SLOW_SECONDS = 1.0
"""An answer that took longer says too little of what time it is."""
_log = logging.getLogger(__name__)


def _wall() -> datetime:
    return datetime.now(UTC)


class Clock:
    def __init__(self, wall: Callable[[], datetime] = _wall, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._set: tuple[datetime, float] | None = None
        """What time it was at which monotonic time."""
        self._jump = timedelta(0)
        self._doubtful_until = 0.0

    def now(self) -> datetime:
        known = self._set
        return self._wall() if known is None else known[0] + timedelta(seconds=self._monotonic() - known[1])

    def judging(self) -> datetime:
        """The time by which others' leases are judged: ``now``, or what it was before time leapt ahead a moment ago.

        Whoever lives has renewed its lease by the new time when that moment is over.
        """
        return self.now() - (self._jump if self._monotonic() < self._doubtful_until else timedelta(0))

    def synchronize(self, session: Session, *, settle_seconds: float) -> float:
        """Take the database's time; returns by how many seconds this host's clock is before it.

        ``settle_seconds``: seconds in which every worker that lives renews its leases.
        """
        # Only the question itself is timed, not how long a connection took.
        session.connection()
        begun = self._monotonic()
        told = statements.now(session, self._wall)
        ended = self._monotonic()
        if self._set is not None and ended - begun > _SLOW_SECONDS:
            return (self._wall() - self.now()).total_seconds()
        told += timedelta(seconds=(ended - begun) / 2)
        ahead = (self._wall() - told).total_seconds()
        with self._lock:
            leap = told - self.now() if self._set else timedelta(0)
            if abs(leap.total_seconds()) > _JUMP_SECONDS:
                _log.warning("the database's clock jumped by %.0f s", leap.total_seconds())
            if leap.total_seconds() > _JUMP_SECONDS:
                self._jump, self._doubtful_until = leap, ended + settle_seconds
            self._set = told, ended
        return ahead


_clock = Clock()


def now() -> datetime:
    return _clock.now()


def judging() -> datetime:
    return _clock.judging()


def synchronize(session: Session, *, settle_seconds: float) -> float:
    return _clock.synchronize(session, settle_seconds=settle_seconds)
