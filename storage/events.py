"""Events of jobs, in the order in which watchers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, select
from sqlalchemy.orm import Session, aliased

from domain import errors
from domain.jobs import FINAL_STATES, EventKind, JobEvent
from storage import statements
from storage.tables import EventRow, JobRow

_COLUMNS = (EventRow.id, EventRow.job_id, EventRow.kind, EventRow.data, EventRow.at)


def append(session: Session, job_id: str, kind: EventKind, data: dict[str, Any], *, now: datetime) -> int:
    """Append an event and return its id. Raises JobNotFound.

    The job's row stays locked until the transaction ends, so that event ids become visible in order; otherwise, a
    watcher that resumes after a later id would miss an earlier one.
    """
    if session.scalar(select(JobRow.id).where(JobRow.id == job_id).with_for_update()) is None:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    row = EventRow(job_id=job_id, kind=kind, data=data, at=now)
    session.add(row)
    session.flush()
    return row.id


def after(session: Session, job_id: str, last_id: int, limit: int) -> list[JobEvent]:
    """Return the next events after ``last_id``, 0 for the first; none for an unknown job."""
    following = select(*_COLUMNS).where(EventRow.job_id == job_id, EventRow.id > last_id)
    return [_event(row) for row in session.execute(following.order_by(EventRow.id).limit(limit))]


def newer(session: Session, last_ids: Mapping[str, int], limit: int) -> list[JobEvent]:
    """Return new events of several jobs, given the last known event of each; at most ``limit`` in total.

    For each job, the returned events are contiguous.
    """
    job_id, last_id = statements.each_pair_of(session, last_ids)
    following = select(*_COLUMNS).join(job_id.table, (EventRow.job_id == job_id) & (EventRow.id > last_id))
    return [_event(row) for row in session.execute(following.order_by(EventRow.id).limit(limit))]


def newest(session: Session, job_id: str) -> int:
    """Return the id of the job's last event; 0 without events."""
    return session.scalar(select(func.max(EventRow.id)).where(EventRow.job_id == job_id)) or 0


def of_kinds(session: Session, job_id: str, kinds: Sequence[EventKind], limit: int) -> list[JobEvent]:
    """Return the last events of these kinds, oldest first."""
    own = select(*_COLUMNS).where(EventRow.job_id == job_id, EventRow.kind.in_(kinds))
    return [_event(row) for row in session.execute(own.order_by(EventRow.id.desc()).limit(limit))][::-1]


def ended(session: Session, job_ids: Sequence[str]) -> set[str]:
    """Return those of the jobs that are in a final state or do not exist."""
    living = select(JobRow.id).where(JobRow.id.in_(select(statements.each_of(session, job_ids))))
    return set(job_ids) - set(session.scalars(living.where(JobRow.state.not_in(FINAL_STATES))))


def forget(session: Session, *, ended_before: datetime, most_jobs: int) -> int:
    """Remove the events within jobs that ended before a time, for a limited number of jobs; returns that number.

    Events of states, and of starts and ends of stages, are kept: watchers still see how the job ended.
    """
    working = (EventRow.kind == EventKind.STAGE) & (EventRow.data["status"].as_string() == "working")
    within = EventRow.kind.in_([EventKind.PROGRESS, EventKind.NOTE]) | working
    has_some = select(EventRow.id).where(EventRow.job_id == JobRow.id, within).exists()
    old = select(JobRow.id).where(JobRow.finished_at < ended_before, has_some).limit(most_jobs)
    found = list(session.scalars(old))
    session.execute(delete(EventRow).where(EventRow.job_id.in_(found), within))
    return len(found)


def latest(session: Session, job_id: str, kind: EventKind) -> JobEvent | None:
    query = select(*_COLUMNS).where(EventRow.job_id == job_id, EventRow.kind == kind).order_by(EventRow.id.desc())
    row = session.execute(query.limit(1)).first()
    return _event(row) if row else None


def latest_of_each(session: Session, job_ids: Sequence[str], kind: EventKind) -> dict[str, JobEvent]:
    """Return the last event of a kind of each of the jobs that has one, by job id."""
    if not job_ids:
        return {}
    job_id = statements.each_of(session, job_ids)
    own = aliased(EventRow)
    last = select(own.id).where(own.job_id == job_id, own.kind == kind).order_by(own.id.desc()).limit(1)
    found = session.execute(select(*_COLUMNS).join(job_id.table, EventRow.id == last.scalar_subquery()))
    return {row.job_id: _event(row) for row in found}


def _event(row: Row[Any]) -> JobEvent:
    return JobEvent(id=row.id, job_id=row.job_id, kind=EventKind(row.kind), data=row.data, at=row.at)
