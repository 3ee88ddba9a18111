"""The time of the database, by which leases are judged; the clocks of hosts do not matter.

A process reads the database's time with every heartbeat and counts on from there by the monotonic clock. SQLite has no
clock of its own: there the host's clock is used.
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
"""A slower answer is too inaccurate to be used."""
_log = logging.getLogger(__name__)


def _wall() -> datetime:
    return datetime.now(UTC)


class Clock:
    def __init__(self, wall: Callable[[], datetime] = _wall, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._set: tuple[datetime, float] | None = None
        """A database time and the monotonic time at which it was read."""
        self._jump = timedelta(0)
        self._doubtful_until = 0.0

    def now(self) -> datetime:
        known = self._set
        return self._wall() if known is None else known[0] + timedelta(seconds=self._monotonic() - known[1])

    def judging(self) -> datetime:
        """The time by which the leases of others expire: ``now``, or the old time for a while after a leap ahead.

        Within that while every live worker renews its lease by the new time.
        """
        return self.now() - (self._jump if self._monotonic() < self._doubtful_until else timedelta(0))

    def synchronize(self, session: Session, *, settle_seconds: float) -> float:
        """Read the database's time; return by how many seconds this host's clock is ahead of it.

        ``settle_seconds``: seconds within which every live worker renews its leases.
        """
        # Only the query is timed, not the connection.
        session.connection()
        begun = self._monotonic()
        read = statements.now(session, self._wall)
        ended = self._monotonic()
        if self._set is not None and ended - begun > _SLOW_SECONDS:
            return (self._wall() - self.now()).total_seconds()
        read += timedelta(seconds=(ended - begun) / 2)
        ahead = (self._wall() - read).total_seconds()
        with self._lock:
            leap = read - self.now() if self._set else timedelta(0)
            if abs(leap.total_seconds()) > _JUMP_SECONDS:
                _log.warning("the database's clock jumped by %.0f s", leap.total_seconds())
            if leap.total_seconds() > _JUMP_SECONDS:
                self._jump, self._doubtful_until = leap, ended + settle_seconds
            self._set = read, ended
        return ahead


_clock = Clock()


def now() -> datetime:
    return _clock.now()


def judging() -> datetime:
    return _clock.judging()


def synchronize(session: Session, *, settle_seconds: float) -> float:
    return _clock.synchronize(session, settle_seconds=settle_seconds)
