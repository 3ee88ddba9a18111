"""A job's trials as numbers, without their schedules: what a plot of its search needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from domain.jobs import Placement
from storage.tables import RecordRow


@dataclass(frozen=True, kw_only=True)
class Trial:
    record_id: int
    """Grows; what a later call goes on after."""
    workload_digest: str
    tuner: str
    latency: float | None
    """Seconds; None when it failed."""
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How far a job had come with one workload."""

    trials: int
    first: Trial
    best: float | None


def of_job(session: Session, job_id: str, *, after: int = 0) -> list[Trial]:
    """In the order in which they were stored."""
    query = select(*_COLUMNS).where(RecordRow.job_id == job_id, RecordRow.id > after).order_by(RecordRow.id)
    return [_trial(*row) for row in session.execute(query)]


def standings(session: Session, job_id: str, *, up_to: int) -> dict[str, Standing]:
    """By workload digest, with records up to and with that one."""
    counted = (
        select(
            func.min(RecordRow.id).label("first_id"),
            func.count().label("trials"),
            func.min(RecordRow.latency).label("best"),
        )
        .where(RecordRow.job_id == job_id, RecordRow.id <= up_to)
        .group_by(RecordRow.workload_digest)
        .subquery()
    )
    query = select(counted.c.trials, counted.c.best, *_COLUMNS).join(RecordRow, RecordRow.id == counted.c.first_id)
    found = [(count, best, _trial(*first)) for count, best, *first in session.execute(query)]
    return {first.workload_digest: Standing(trials=count, first=first, best=best) for count, best, first in found}


def known_before(
    session: Session, workload_digests: Collection[str], placement: Placement, *, record_id: int
) -> dict[str, float]:
    """The best latency of each workload at the placement among records older than that one, whoever's they are."""
    query = (
        select(RecordRow.workload_digest, func.min(RecordRow.latency))
        .where(
            RecordRow.workload_digest.in_(workload_digests),
            RecordRow.target == placement.target.identity,
            RecordRow.device_key == placement.device.key,
            RecordRow.toolchain == placement.toolchain.identity,
            RecordRow.id < record_id,
        )
        .group_by(RecordRow.workload_digest)
    )
    return {digest: best for digest, best in session.execute(query) if best is not None}


_COLUMNS = (RecordRow.id, RecordRow.workload_digest, RecordRow.tuner, RecordRow.latency, RecordRow.finished_at)


def _trial(record_id: int, workload_digest: str, tuner: str, latency: float | None, at: datetime) -> Trial:
    return Trial(record_id=record_id, workload_digest=workload_digest, tuner=tuner, latency=latency, at=at)
