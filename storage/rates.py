"""How fast trials went, told from when they ended."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.tables import JobRow, RecordRow

SECONDS_A_TRIAL = 0.5
"""To be taken where a device has no trials yet: AutoTVM's candidates of small networks, built and measured by workers
that live on, took 0.2 to 0.4 s on two cores; larger ones and other tuners take longer."""

_JOBS = 5
_TRIALS = 512
_LEAST_TRIALS = 8


def seconds_a_trial(session: Session, *, device_key: str, toolchain: str, tuner: str) -> float | None:
    """What a trial of this tuner took on this device, from the latest jobs there; None when too few are stored.

    The median job counts. A job's trials end in bursts, so the time between its first and last one is shared by all.
    """
    latest = (
        select(JobRow.id)
        .where(JobRow.device_key == device_key, JobRow.toolchain == toolchain, JobRow.trials_done >= _LEAST_TRIALS)
        .order_by(JobRow.created_at.desc())
        .limit(_JOBS)
    )
    paces = [_pace(session, job_id, tuner) for job_id in session.scalars(latest).all()]
    known = [pace for pace in paces if pace is not None]
    return median(known) if known else None


def _pace(session: Session, job_id: str, tuner: str) -> float | None:
    ended = (
        select(RecordRow.finished_at)
        .where(RecordRow.job_id == job_id, RecordRow.tuner == tuner)
        .order_by(RecordRow.finished_at)
        .limit(_TRIALS)
    )
    times = list(session.scalars(ended))
    if len(times) < _LEAST_TRIALS:
        return None
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    # A job that was interrupted, and resumed later, did not measure in between.
    usual = sorted(gaps)[: max(1, len(gaps) * 99 // 100)]
    return sum(usual) / len(usual)
