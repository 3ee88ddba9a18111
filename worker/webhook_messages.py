"""What a webhook is told of a job's end; the same bytes at every attempt, as an ended job changes no more."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import Failure, Job
from storage import artifacts, codec, jobs, models

_MOST_FAILURE_CHARACTERS = 2000


def compose(session: Session, job_id: str) -> bytes:
    """The JSON body; docs/webhooks.md describes it. Raises JobNotFound."""
    job = jobs.get(session, job_id)
    model = models.get(session, job.request.model_digest)
    ended = job.finished_at or job.created_at
    message = {
        "type": f"job.{job.state}",
        "timestamp": ended.isoformat().replace("+00:00", "Z"),
        "data": {
            "job": job.id,
            "state": job.state.value,
            "model": model.id,
            "model_name": model.name,
            "target": job.request.target,
            "labels": job.request.labels,
            "group": job.request.group,
            "artifact_id": job.artifact_id,
            "failure": _failure(job.failure) if job.failure else None,
            "summary": _summary(session, job),
        },
    }
    return codec.to_json(message).encode()


def _failure(failure: Failure) -> dict[str, Any]:
    """Without its details, which know no bounds: ``GET /v1/jobs/{id}`` has them."""
    return {
        "code": failure.code,
        "message": failure.message[:_MOST_FAILURE_CHARACTERS],
        "hint": failure.hint[:_MOST_FAILURE_CHARACTERS] if failure.hint else None,
    }


def _summary(session: Session, job: Job) -> str | None:
    if job.artifact_id is None:
        return None
    try:
        return artifacts.get(session, job.artifact_id).report.summary
    except errors.ArtifactNotFound:
        return None
