"""A job's status, which everyone who waits asks for again and again: read once for all who ask at the same time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from api import schemas
from domain.jobs import JobState
from storage.glances import Glance

_MOST_JOBS = 200


@dataclass(frozen=True)
class Status:
    detail: schemas.JobDetail

    @cached_property
    def body(self) -> bytes:
        return self.detail.model_dump_json().encode()


Told = TypeVar("Told")


class StatusCache(Generic[Told]):
    """Tells for a short time what was told before, as long as the job's state and stage are what they were."""

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, Glance, Told]] = OrderedDict()

    def recall(self, key: str, glance: Glance) -> Told | None:
        with self._lock:
            at, seen, told = self._kept.get(key, (0.0, None, None))
            return told if seen == glance and self._clock() - at < self._seconds else None

    def keep(self, key: str, glance: Glance, told: Told) -> None:
        # What a queued job waits for depends on the workers, not on the job.
        if glance.state is JobState.QUEUED or not self._seconds:
            return
        with self._lock:
            self._kept[key] = (self._clock(), glance, told)
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST_JOBS:
                self._kept.popitem(last=False)
