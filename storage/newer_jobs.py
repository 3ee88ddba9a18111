"""Jobs that a newer release may have written into the same database: what of them this one understands."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain.jobs import JobRequest
from storage import codec
from storage.tables import JobRow


def requests(session: Session, job_ids: Sequence[str]) -> dict[str, JobRequest | None]:
    """What each of the jobs asks for; None where this release does not know a field or a value of it."""
    if not job_ids:
        return {}
    found = session.execute(select(JobRow.id, JobRow.request).where(JobRow.id.in_(job_ids)))
    return {
        job_id: None if codec.unknown(JobRequest, request) else codec.load(JobRequest, request)
        for job_id, request in found
    }
