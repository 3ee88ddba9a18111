"""How much there is and how fast it grows, by queries that stay cheap however much is stored."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from domain.jobs import JobState
from storage.tables import JobRow, RecordRow, WebhookDeliveryRow, WorkerRow

_OWN_TRIALS = "j-"
"""Start of job ids; imported records carry no job's."""


def jobs_by_state(session: Session) -> dict[JobState, int]:
    """Every state, with 0 where no job has it."""
    found = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).all()
    return {**dict.fromkeys(JobState, 0), **{JobState(state): count for state, count in found}}


def oldest_queued(session: Session) -> datetime | None:
    """When the job that waits longest was created."""
    queued = select(JobRow.created_at).where(JobRow.state == JobState.QUEUED)
    return session.scalar(queued.order_by(JobRow.created_at).limit(1))


def workers(session: Session, *, seen_since: datetime) -> tuple[int, int]:
    """Those alive, and those of them that have a job."""
    counts = select(func.count(), func.count(WorkerRow.current_job)).where(WorkerRow.last_seen_at >= seen_since)
    alive, busy = session.execute(counts).one()
    return alive, busy


def pending_deliveries(session: Session) -> int:
    """Webhook messages that are still to be sent."""
    pending = select(func.count()).where(WebhookDeliveryRow.next_attempt_at.is_not(None))
    return session.scalar(pending) or 0


def newest_record(session: Session) -> int:
    """Its number; 0 when there is none."""
    return session.scalar(select(func.max(RecordRow.id))) or 0


def trials(session: Session, *, after: int, to: int) -> dict[str | None, int]:
    """Count of the service's own trials among records numbered ``after`` < number ≤ ``to``, by error; None: valid."""
    numbered = (RecordRow.id > after, RecordRow.id <= to, RecordRow.job_id.startswith(_OWN_TRIALS))
    by_error = select(RecordRow.error, func.count().label("trials")).where(*numbered).group_by(RecordRow.error)
    return {row.error: row.trials for row in session.execute(by_error)}
