"""Which trace a job's attempts go on with, where requests are traced: that of the request which made it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.tables import JobRow


def of_job(session: Session, job_id: str) -> str | None:
    """A ``traceparent``, as W3C Trace Context has it."""
    return session.scalar(select(JobRow.trace_parent).where(JobRow.id == job_id))
