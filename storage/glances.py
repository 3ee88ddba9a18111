"""The least that tells whether a job has moved on since it was last looked at."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, select
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


_jobs = JobRow.__table__.c
_QUERY = select(_jobs.owner, _jobs.state, _jobs.stage, _jobs.claims, _jobs.attempts, _jobs.artifact_id).where(
    _jobs.id == bindparam("job_id")
)
"""Made once: it is asked more often than all others together."""


def of_job(session: Session, job_id: str) -> Glance:
    """Raises JobNotFound."""
    row = session.connection().execute(_QUERY, {"job_id": job_id}).first()
    if row is None:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    return Glance(row.owner, JobState(row.state), row.stage, row.claims, row.attempts, row.artifact_id)
