"""Jobs that wait, as one worker sees them that looks again and again while it helps with another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from domain import capabilities
from domain.workers import Worker
from storage import newer_jobs

_LOOKED_AT = 20
"""Jobs in the first look; each further one, where none of these is for the worker, goes ten times as deep."""

Waiting = Callable[[int], Sequence[str]]
"""Ids of so many jobs that wait, most urgent first."""


@dataclass
class Lookout:
    _for_others: set[str] = field(default_factory=set)
    """Waiting jobs that this worker cannot begin: what a job asks for never changes, nor what a worker has."""

    def first_able(self, session: Session, waiting: Waiting, announced: Worker | None) -> str | None:
        """The most urgent job that the worker could begin; ``announced``: None where it takes whatever it is sent."""
        most = _LOOKED_AT
        while True:
            ids = waiting(most)
            for job_id in ids:
                if job_id not in self._for_others:
                    if _could_begin(session, job_id, announced):
                        return job_id
                    self._for_others.add(job_id)
            if len(ids) < most:
                self._for_others.intersection_update(ids)
                return None
            most *= 10


def _could_begin(session: Session, job_id: str, announced: Worker | None) -> bool:
    """Unless it is of a newer release, whose workers begin it."""
    if newer_jobs.unknown(session, job_id):
        return False
    return any(
        announced is None or capabilities.lacking(job.request, announced) is None
        for job in newer_jobs.readable(session, [job_id])
    )
