"""Jobs that a newer release may have written into the same database: what of them this one understands."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import Job, JobRequest
from storage import codec, jobs
from storage.tables import JobRow


def readable(session: Session, job_ids: Sequence[str]) -> list[Job]:
    """Those of the jobs whose requests this release can read, fields that it does not know left out."""
    found = []
    for job_id in job_ids:
        try:
            found.append(jobs.get(session, job_id))
        except ValidationError:
            continue
    return found


def unknown(session: Session, job_id: str) -> list[str]:
    """Names of what the job asks for and this release does not know. Raises JobNotFound."""
    request = session.scalar(select(JobRow.request).where(JobRow.id == job_id))
    if request is None:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    return codec.unknown(JobRequest, request)
