"""Results of the finished stages of a job, from which the next attempt continues."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from domain.jobs import Job, Lease, Stage
from domain.stage_results import RESULTS, StageResult
from storage import codec, jobs, statements
from storage.tables import StageRow

R = TypeVar("R", bound=StageResult)


@dataclass(frozen=True, kw_only=True)
class FinishedStage:
    stage: Stage
    attempt: int
    result: StageResult | None
    """None if another release stored it in a form that this one cannot read."""
    started_at: datetime
    finished_at: datetime

    @property
    def seconds(self) -> float:
        return (self.finished_at - self.started_at).total_seconds()


def result(session: Session, job_id: str, kind: type[R]) -> R | None:
    """Return the result of a stage; None if it has not finished, or was stored in an unreadable form by
    another release."""
    row = session.get(StageRow, (job_id, kind.stage), populate_existing=True)
    return codec.try_load(kind, row.outcome) if row else None


def of_first_size(session: Session, job: Job, kind: type[R]) -> R | None:
    """Likewise, of the job that tunes the first size, if this one tunes a later size of the same job."""
    if job.part_of is None:
        return None
    first = jobs.parts(session, job.part_of)[0]
    return result(session, first.id, kind) if first.id != job.id else None


def save(
    session: Session, job_id: str, lease: Lease, result: StageResult, *, started_at: datetime, finished_at: datetime
) -> bool:
    """Store or replace a stage's result; returns False without writing if the lease is lost."""
    if not jobs.holds(session, job_id, lease):
        return False
    row = {
        "job_id": job_id,
        "stage": result.stage,
        "attempt": lease.attempt,
        "outcome": codec.dump(result),
        "started_at": started_at,
        "finished_at": finished_at,
    }
    statements.put(session, StageRow, row, key=["job_id", "stage"])
    return True


def forget(session: Session, job_id: str, forgotten: Collection[Stage]) -> None:
    """Delete the results of these stages, so that the stages run again."""
    statements.changed(session, delete(StageRow).where(StageRow.job_id == job_id, StageRow.stage.in_(forgotten)))


def timeline(session: Session, job_id: str) -> list[FinishedStage]:
    """Return the finished stages in order of completion."""
    query = select(StageRow).where(StageRow.job_id == job_id).order_by(StageRow.finished_at)
    return [_finished(row) for row in session.scalars(query, execution_options={"populate_existing": True})]


def _finished(row: StageRow) -> FinishedStage:
    result = codec.try_load(RESULTS[Stage(row.stage)], row.outcome)
    return codec.from_row(FinishedStage, row, result=result)
