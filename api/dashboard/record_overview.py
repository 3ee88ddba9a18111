"""The whole record store at a glance, counted once for everyone who looks within a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from storage import record_summaries
from storage.database import Database
from storage.record_summaries import PlaceSummary, WorkloadSummary

_LEAST_SECONDS = 10.0
_TIMES_AS_LONG = 60
"""An answer is kept this many times as long as counting it took: counting costs under 2 % of one core."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    workloads: list[WorkloadSummary]
    """At each place, the most trials first."""
    places: list[PlaceSummary]
    at: datetime

    @property
    def trials(self) -> int:
        return sum(place.trials for place in self.places)

    @property
    def failures(self) -> int:
        return sum(place.failures for place in self.places)


class RecordOverview:
    """May be asked from many threads: one counts, the others get what was counted before."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counting = threading.Lock()
        self._known: Overview | None = None
        self._good_until = 0.0

    def get(self, database: Database) -> Overview:
        known = self._known
        if known and self._clock() < self._good_until:
            return known
        if not self._counting.acquire(blocking=known is None):
            assert known is not None  # noqa: S101 - else it would have waited
            return known
        try:
            if self._known is None or self._clock() >= self._good_until:
                self._count(database)
        finally:
            self._counting.release()
        assert self._known is not None  # noqa: S101 - counted just now, or by whom we waited for
        return self._known

    def _count(self, database: Database) -> None:
        started = self._clock()
        with database.reading() as session:
            workloads = record_summaries.read(session)
        self._known = Overview(workloads=workloads, places=record_summaries.by_place(workloads), at=datetime.now(UTC))
        ended = self._clock()
        self._good_until = ended + max(_LEAST_SECONDS, _TIMES_AS_LONG * (ended - started))
