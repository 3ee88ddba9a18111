"""Which of the jobs that wait a worker can begin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from sqlalchemy.orm import Session

from domain import capabilities
from domain.jobs import JobRequest
from domain.workers import Worker
from storage import newer_jobs

_FIRST, _MOST = 2, 200
"""Requests read in one query: mostly the first job is for the worker."""


@dataclass
class Lookout:
    """Looks through the queue, and remembers what it found to be for others."""

    _for_others: set[str] = field(default_factory=set)
    """Waiting jobs that this worker cannot begin: what a job asks for never changes, nor what a worker has."""

    def first_able(self, session: Session, waiting: Iterator[str], announced: Worker | None) -> str | None:
        """The first of the jobs that the worker could begin, however many come before it.

        ``waiting``: ids in the order of claims. ``announced``: what the worker has; None where it takes any job.
        """
        seen: set[str] = set()
        size = _FIRST
        while some := list(islice(waiting, size)):
            size = min(4 * size, _MOST)
            requests = newer_jobs.requests(session, [job_id for job_id in some if job_id not in self._for_others])
            for job_id in some:
                if job_id in requests:
                    if _serves(announced, requests[job_id]):
                        return job_id
                    self._for_others.add(job_id)
            seen.update(some)
        self._for_others &= seen
        return None


def _serves(announced: Worker | None, request: JobRequest | None) -> bool:
    """Jobs of a newer release are left to workers of that release."""
    return request is not None and (announced is None or capabilities.lacking(request, announced) is None)
