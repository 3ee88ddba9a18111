"""What the finished stages of a job found out, so that the next attempt goes on behind them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain.jobs import Lease, Stage
from storage import codec, jobs, statements
from storage.tables import StageRow


@dataclass(frozen=True, kw_only=True)
class FinishedStage:
    stage: Stage
    attempt: int
    outcome: dict[str, Any]
    started_at: datetime
    finished_at: datetime

    @property
    def seconds(self) -> float:
        return (self.finished_at - self.started_at).total_seconds()


def outcome(session: Session, job_id: str, stage: Stage) -> dict[str, Any] | None:
    """None when the stage has not finished; outcomes are JSON objects, finite numbers only."""
    row = session.get(StageRow, (job_id, stage), populate_existing=True)
    return row.outcome if row else None


def outcomes(session: Session, job_id: str) -> dict[Stage, dict[str, Any]]:
    return {finished.stage: finished.outcome for finished in timeline(session, job_id)}


def save(
    session: Session,
    job_id: str,
    lease: Lease,
    stage: Stage,
    outcome: dict[str, Any],
    *,
    started_at: datetime,
    finished_at: datetime,
) -> bool:
    """Keep or replace a stage's outcome; False, and nothing written, when the lease is lost."""
    if not jobs.holds(session, job_id, lease):
        return False
    row = {
        "job_id": job_id,
        "stage": stage,
        "attempt": lease.attempt,
        "outcome": outcome,
        "started_at": started_at,
        "finished_at": finished_at,
    }
    statements.put(session, StageRow, row, key=["job_id", "stage"])
    return True


def timeline(session: Session, job_id: str) -> list[FinishedStage]:
    """In the order in which the stages finished."""
    query = select(StageRow).where(StageRow.job_id == job_id).order_by(StageRow.finished_at)
    return [
        codec.from_row(FinishedStage, row)
        for row in session.scalars(query, execution_options={"populate_existing": True})
    ]
