"""What happened to a job, in the order in which watchers see it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain import errors
from domain.events import EventKind, JobEvent
from storage.tables import EventRow, JobRow


def append(session: Session, job_id: str, kind: EventKind, data: dict[str, Any], *, now: datetime) -> int:
    """Return the event's id. Raises JobNotFound.

    The job's row stays locked until the transaction ends: a later id never becomes visible before an earlier one,
    which a watcher that resumes after the later one would miss.
    """
    if session.scalar(select(JobRow.id).where(JobRow.id == job_id).with_for_update()) is None:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    row = EventRow(job_id=job_id, kind=kind, data=data, at=now)
    session.add(row)
    session.flush()
    return row.id


def after(session: Session, job_id: str, last_id: int, limit: int) -> list[JobEvent]:
    """The next events after ``last_id``, 0 for the first; none for an unknown job."""
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.id > last_id).order_by(EventRow.id).limit(limit)
    return [
        JobEvent(id=row.id, job_id=row.job_id, kind=EventKind(row.kind), data=row.data, at=row.at)
        for row in session.scalars(query)
    ]


def latest(session: Session, job_id: str, kind: EventKind) -> JobEvent | None:
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.kind == kind).order_by(EventRow.id.desc())
    row = session.scalar(query.limit(1))
    if row is None:
        return None
    return JobEvent(id=row.id, job_id=row.job_id, kind=EventKind(row.kind), data=row.data, at=row.at)
