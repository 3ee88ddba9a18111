"""Places of queued jobs in the queue."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from api.jobs import placing
from domain.jobs import Job, JobState
from domain.workers import Worker
from storage import job_queries, queue

MOST = 100
"""Places that are counted."""
_LISTED = 10


@dataclass(frozen=True, kw_only=True)
class QueuePlace:
    position: int
    """1 for the next job to start."""
    before: tuple[str, ...] = ()
    """Ids of the owner's jobs that start before, the next one first; at most ten."""


def places(
    session: Session, jobs: Sequence[Job], living: Sequence[Worker], held: Collection[str], *, now: datetime
) -> dict[str, QueuePlace]:
    """Return the places of those of the jobs that wait for nothing but their turn, by id.

    Jobs that no live worker can run are not counted; other owners' jobs are counted, but not named.
    """
    waiting = {
        job.id: job.owner
        for job in jobs
        if job.state is JobState.QUEUED and placing.waits_for(job, living, held) is None
    }
    if not waiting:
        return {}
    rules = queue.Rules(now=now, judging=now, max_attempts=sys.maxsize)
    order = queue.outlook(session, rules, most=MOST)
    requests = job_queries.requests_of(session, order)
    owners = job_queries.owners_of(session, order)
    found: dict[str, QueuePlace] = {}
    ahead: list[str] = []
    for job_id in order:
        request = requests[job_id]
        if request is None or placing.lacked(request, living) is not None:
            continue
        if job_id in waiting:
            before = [each for each in ahead if owners[each] == waiting[job_id]]
            found[job_id] = QueuePlace(position=len(ahead) + 1, before=tuple(before[:_LISTED]))
        ahead.append(job_id)
    return found
