"""The least that tells whether a job has moved on since it was last looked at."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import JobState
from storage.tables import JobRow


@dataclass(frozen=True)
class Glance:
    owner: str
    state: JobState
    stage: str | None
    claims: int
    attempts: int
    artifact_id: str | None


def of_job(session: Session, job_id: str) -> Glance:
    """Raises JobNotFound."""
    columns = (JobRow.owner, JobRow.state, JobRow.stage, JobRow.claims, JobRow.attempts, JobRow.artifact_id)
    row = session.execute(select(*columns).where(JobRow.id == job_id)).first()
    if row is None:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    return Glance(row.owner, JobState(row.state), row.stage, row.claims, row.attempts, row.artifact_id)
