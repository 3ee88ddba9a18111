"""Queries about jobs: filters of listings, and frequently needed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from sqlalchemy import ColumnElement, bindparam, or_, select
from sqlalchemy.orm import Session

from domain import errors
from domain.digests import ModelDigest
from domain.jobs import JobRequest, JobState, Tuner
from storage import codec
from storage.tables import JobLabelRow, JobRow, ModelRow


class JobFilter(TypedDict, total=False):
    """Filters of jobs; all that are not None must match. Only ``part_of`` finds parts."""

    owner: str | None
    state: JobState | None
    model_digest: ModelDigest | None
    label: tuple[str, str] | None
    """Name and value."""
    group: str | None
    target: str | None
    """As requested, or as resolved by the worker, with or without its thread count."""
    tuner: Tuner | None
    created_after: datetime | None
    """At this time or later."""
    created_before: datetime | None
    part_of: str | None
    """A job of several sizes."""
    text: str | None
    """Part of a model name, group or label value, or a prefix of the id."""


def conditions(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.get("part_of") is None:
        yield JobRow.part_of.is_(None)
    for name, value in wanted.items():
        if value is not None:
            yield _CONDITIONS[name](value)


def _has_label(label: tuple[str, str]) -> ColumnElement[bool]:
    name, value = label
    return JobRow.id.in_(select(JobLabelRow.job_id).where(JobLabelRow.name == name, JobLabelRow.value == value))


def _is_for(target: str) -> ColumnElement[bool]:
    return or_(
        JobRow.request["target"].as_string() == target,
        JobRow.target == target,
        JobRow.target.startswith(f"{target} -num-cores=", autoescape=True),
    )


def _mentions(text: str) -> ColumnElement[bool]:
    named = select(ModelRow.digest).where(ModelRow.name.icontains(text, autoescape=True))
    labelled = select(JobLabelRow.job_id).where(JobLabelRow.value.icontains(text, autoescape=True))
    return or_(
        JobRow.model_digest.in_(named),
        JobRow.group_name.icontains(text, autoescape=True),
        JobRow.id.in_(labelled),
        JobRow.id.startswith(text, autoescape=True),
    )


_CONDITIONS: dict[str, Callable[[Any], ColumnElement[bool]]] = {
    "owner": lambda owner: JobRow.owner == owner,
    "state": lambda state: JobRow.state == state,
    "model_digest": lambda digest: JobRow.model_digest == digest,
    "label": _has_label,
    "group": lambda group: JobRow.group_name == group,
    "target": _is_for,
    "tuner": lambda tuner: JobRow.request["tuner"].as_string() == tuner.value,
    "created_after": lambda at: JobRow.created_at >= at,
    "created_before": lambda at: JobRow.created_at < at,
    "part_of": lambda job_id: JobRow.part_of == job_id,
    "text": _mentions,
}


@dataclass(frozen=True)
class JobSummary:
    owner: str
    state: JobState
    stage: str | None
    claims: int
    attempts: int
    artifact_id: str | None


_columns = JobRow.__table__.c
_SUMMARY = select(
    _columns.owner, _columns.state, _columns.stage, _columns.claims, _columns.attempts, _columns.artifact_id
).where(_columns.id == bindparam("job_id"))
"""Compiled once, as this is the most frequent query by far."""


def summary(session: Session, job_id: str) -> JobSummary:
    """Return a job's summary. Raises JobNotFound."""
    row = session.connection().execute(_SUMMARY, {"job_id": job_id}).first()
    if row is None:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    return JobSummary(row.owner, JobState(row.state), row.stage, row.claims, row.attempts, row.artifact_id)


def trace_of(session: Session, job_id: str) -> str | None:
    """Return the ``traceparent`` of W3C Trace Context."""
    return session.scalar(select(JobRow.trace_parent).where(JobRow.id == job_id))


def owners_of(session: Session, job_ids: Sequence[str]) -> dict[str, str]:
    """Return the owner of each job."""
    query = select(JobRow.id, JobRow.owner).where(JobRow.id.in_(job_ids))
    return {row.id: row.owner for row in session.execute(query)}


def requests_of(session: Session, job_ids: Sequence[str]) -> dict[str, JobRequest | None]:
    """Return the request of each job; None if this release does not know one of its fields or values."""
    if not job_ids:
        return {}
    found = session.execute(select(JobRow.id, JobRow.request).where(JobRow.id.in_(job_ids)))
    return {
        job_id: None if codec.unknown(JobRequest, request) else codec.load(JobRequest, request)
        for job_id, request in found
    }
