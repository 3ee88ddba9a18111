"""A job's status, which everyone who waits asks for again and again: read once for all who ask at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from api import schemas
from api.live.kept import Kept
from api.transport import etags
from domain.jobs import JobState
from storage.glances import Glance

_MOST_JOBS = 200


@dataclass(frozen=True)
class Status:
    detail: schemas.JobDetail

    @cached_property
    def body(self) -> bytes:
        return self.detail.model_dump_json().encode()

    @cached_property
    def end(self) -> bytes:
        """Of a whole HTTP answer: the headers that tell of the body, and the body."""
        return b"content-length: %d\r\netag: %s\r\n\r\n%s" % (len(self.body), etags.of(self.body).encode(), self.body)


Told = TypeVar("Told")


class StatusCache(Generic[Told]):
    """Tells for a short time what was told before, as long as the job's state and stage are what they were."""

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._kept: Kept[tuple[Glance, Told]] = Kept(most=_MOST_JOBS, clock=clock)

    def recall(self, key: str, glance: Glance) -> Told | None:
        seen, told = self._kept.get(key) or (None, None)
        return told if seen == glance else None

    def keep(self, key: str, glance: Glance, told: Told) -> None:
        # What a queued job waits for depends on the workers, not on the job.
        if glance.state is not JobState.QUEUED:
            self._kept.put(key, (glance, told), self._seconds)
