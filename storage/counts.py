"""Counts and growth rates, by queries that stay fast with any number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from domain.jobs import JobState
from domain.shared_rounds import RoundState
from storage.tables import JobRow, RecordRow, SharedRoundRow, WebhookDeliveryRow, WorkerRow


def jobs_by_state(session: Session) -> dict[JobState, int]:
    """Return the number of jobs in each state, including zeros, without parts."""
    counted = select(JobRow.state, func.count()).where(JobRow.part_of.is_(None)).group_by(JobRow.state)
    found = session.execute(counted).all()
    return {**dict.fromkeys(JobState, 0), **{JobState(state): count for state, count in found}}


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    jobs: int
    since: datetime
    """Creation time of the first of them."""


def queued_by_priority(session: Session) -> dict[int, Waiting]:
    """Return the queued jobs by priority, without parts."""
    queued = (JobRow.state == JobState.QUEUED, JobRow.part_of.is_(None))
    counted = select(JobRow.priority, func.count(), func.min(JobRow.created_at)).where(*queued)
    found = session.execute(counted.group_by(JobRow.priority)).all()
    return {priority: Waiting(jobs=jobs, since=since) for priority, jobs, since in found}


def rounds_at_work(session: Session) -> dict[RoundState, int]:
    """Return the number of open rounds of trials, and of rounds claimed by helpers."""
    # A literal, as in the partial index, which a parameter would not match.
    at_work = text("state IN ('open', 'claimed')")
    counted = select(SharedRoundRow.state, func.count()).where(at_work).group_by(SharedRoundRow.state)
    found = {RoundState(state): count for state, count in session.execute(counted)}
    return {state: found.get(state, 0) for state in (RoundState.OPEN, RoundState.CLAIMED)}


def workers(session: Session, *, seen_since: datetime) -> tuple[int, int]:
    """Return the number of live workers, and of those with a job."""
    counts = select(func.count(), func.count(WorkerRow.current_job)).where(WorkerRow.last_seen_at >= seen_since)
    alive, busy = session.execute(counts).one()
    return alive, busy


def pending_deliveries(session: Session) -> tuple[int, datetime | None]:
    """Return the number of unsent webhook messages, and the time of the oldest."""
    pending = select(func.count(), func.min(WebhookDeliveryRow.created_at))
    # A range condition, which the index supports; for IS NOT NULL, SQLite would scan the table.
    count, oldest = session.execute(pending.where(WebhookDeliveryRow.next_attempt_at > _LONG_AGO)).one()
    return count, oldest


def newest_record(session: Session) -> int:
    """Return the number of the newest record; 0 without records."""
    return session.scalar(select(func.max(RecordRow.id))) or 0


def trials(session: Session, *, after: int, to: int) -> dict[tuple[str, str | None], int]:
    """Count the trials among records numbered ``after`` < number ≤ ``to``, by tuner and error,
    None for valid ones."""
    numbered = (RecordRow.id > after, RecordRow.id <= to)
    kinds = (RecordRow.tuner, RecordRow.error)
    counted = select(*kinds, func.count().label("trials")).where(*numbered).group_by(*kinds)
    return {(row.tuner, row.error): row.trials for row in session.execute(counted)}
