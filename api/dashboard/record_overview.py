"""The whole record store at a glance, counted once for everyone who looks within a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from storage import record_summaries
from storage.database import Database
from storage.record_summaries import PlaceSummary, WorkloadSummary

logger = logging.getLogger(__name__)

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
    """Counts in a thread of its own, one at a time, however many ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counting: threading.Thread | None = None
        self._known: Overview | None = None
        self._good_until = clock()

    def get(self, database: Database, *, patience: float = 1.0) -> Overview | None:
        """What was counted last when counting anew takes longer than ``patience`` seconds; None when nothing was."""
        with self._lock:
            if self._counting is None and self._clock() >= self._good_until:
                self._counting = threading.Thread(target=self._count, args=[database], name="records", daemon=True)
                self._counting.start()
            counting = self._counting
        if counting is not None:
            counting.join(patience)
        return self._known

    def _count(self, database: Database) -> None:
        started = self._clock()
        try:
            with database.reading() as session:
                workloads = record_summaries.read(session)
            places = record_summaries.by_place(workloads)
            self._known = Overview(workloads=workloads, places=places, at=datetime.now(UTC))
            ended = self._clock()
            self._good_until = ended + max(_LEAST_SECONDS, _TIMES_AS_LONG * (ended - started))
        except Exception:  # whoever asks next has it counted again
            logger.exception("the records could not be counted")
        finally:
            with self._lock:
                self._counting = None
