"""A job's trials as numbers, without their schedules: what a plot of its search needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from domain.jobs import Placement
from storage.tables import RecordRow, digest_of


@dataclass(frozen=True, kw_only=True)
class Trial:
    record_id: int
    workload_digest: str
    tuner: str
    latency: float | None
    """Seconds; None when it failed."""
    at: datetime


def of_job(session: Session, job_id: str) -> list[Trial]:
    """In the order in which they were stored."""
    query = select(*_COLUMNS).where(RecordRow.job_id == job_id).order_by(RecordRow.id)
    return [_trial(*row) for row in session.execute(query)]


def standing(session: Session, job_id: str, workload_keys: Collection[str]) -> dict[str, tuple[int, float | None]]:
    """The job's trials of each workload that has any, and the seconds of the fastest."""
    key_of = {digest_of(key): key for key in workload_keys}
    query = (
        select(RecordRow.workload_digest, func.count(), func.min(RecordRow.latency))
        .where(RecordRow.job_id == job_id, RecordRow.workload_digest.in_(key_of))
        .group_by(RecordRow.workload_digest)
    )
    return {key_of[digest]: (number, best) for digest, number, best in session.execute(query)}


def first_id(session: Session, job_id: str) -> int | None:
    """Of the job's records; None when it has none."""
    return session.scalar(select(func.min(RecordRow.id)).where(RecordRow.job_id == job_id))


def first_ever(session: Session, workload_digests: Collection[str], placement: Placement) -> dict[str, Trial]:
    """The oldest record of each workload at the placement, whoever's it is, by digest."""
    oldest = select(func.min(RecordRow.id)).where(*_at(workload_digests, placement)).group_by(RecordRow.workload_digest)
    found = [_trial(*row) for row in session.execute(select(*_COLUMNS).where(RecordRow.id.in_(oldest)))]
    return {trial.workload_digest: trial for trial in found}


def best_before(
    session: Session, workload_digests: Collection[str], placement: Placement, *, record_id: int
) -> dict[str, float]:
    """The best latency of each workload at the placement among records older than that one, whoever's they are."""
    query = (
        select(RecordRow.workload_digest, func.min(RecordRow.latency))
        .where(*_at(workload_digests, placement), RecordRow.id < record_id)
        .group_by(RecordRow.workload_digest)
    )
    return {digest: best for digest, best in session.execute(query) if best is not None}


def _at(workload_digests: Collection[str], placement: Placement) -> tuple[ColumnElement[bool], ...]:
    return (
        RecordRow.workload_digest.in_(workload_digests),
        RecordRow.target == placement.target.identity,
        RecordRow.device_key == placement.device.key,
        RecordRow.toolchain == placement.toolchain.identity,
    )


_COLUMNS = (RecordRow.id, RecordRow.workload_digest, RecordRow.tuner, RecordRow.latency, RecordRow.finished_at)


def _trial(record_id: int, workload_digest: str, tuner: str, latency: float | None, at: datetime) -> Trial:
    return Trial(record_id=record_id, workload_digest=workload_digest, tuner=tuner, latency=latency, at=at)
