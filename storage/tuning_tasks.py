"""A job's plan; how far it is with each task is read from the records, so the two cannot disagree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import and_, delete, func, select
from sqlalchemy.orm import Session

from domain.tuning_tasks import ExtractedTask, TuningTask
from storage import statements
from storage.tables import JobRow, RecordRow, TuningTaskRow, digest_of


def save_plan(session: Session, job_id: str, tasks: Sequence[TuningTask]) -> None:
    """Replace the plan; ``trials_done``, ``best_latency`` and ``failures`` of the given tasks are not kept."""
    statements.changed(session, delete(TuningTaskRow).where(TuningTaskRow.job_id == job_id))
    session.add_all(_row(job_id, task) for task in tasks)
    session.flush()


def of_job(session: Session, job_id: str) -> list[TuningTask]:
    """In extraction order."""
    query = select(TuningTaskRow).where(TuningTaskRow.job_id == job_id).order_by(TuningTaskRow.position)
    rows = session.scalars(query).all()
    done, failures = _trials(session, job_id)
    best = _best(session, job_id)
    return [
        TuningTask(
            job_id=job_id,
            extracted=_extracted(row),
            trials_planned=row.trials_planned,
            trials_done=done.get(row.workload_digest, 0),
            best_latency=best.get(row.workload_digest),
            failures=dict(failures[row.workload_digest]),
        )
        for row in rows
    ]


def _trials(session: Session, job_id: str) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    query = (
        select(RecordRow.workload_digest, RecordRow.error, func.count())
        .where(RecordRow.job_id == job_id)
        .group_by(RecordRow.workload_digest, RecordRow.error)
    )
    done: dict[str, int] = defaultdict(int)
    failures: dict[str, dict[str, int]] = defaultdict(dict)
    for digest, error, count in session.execute(query):
        done[digest] += count
        if error is not None:
            failures[digest][error] = count
    return done, failures


def _best(session: Session, job_id: str) -> dict[str, float]:
    """Anyone's best latency by workload digest, within the identities of the job's placement."""
    same = and_(
        RecordRow.workload_digest == TuningTaskRow.workload_digest,
        RecordRow.target == JobRow.target,
        RecordRow.device_key == JobRow.device_key,
        RecordRow.toolchain == JobRow.toolchain,
    )
    query = (
        select(TuningTaskRow.workload_digest, func.min(RecordRow.latency))
        .join(JobRow, JobRow.id == TuningTaskRow.job_id)
        .join(RecordRow, same)
        .where(TuningTaskRow.job_id == job_id, RecordRow.latency.is_not(None))
        .group_by(TuningTaskRow.workload_digest)
    )
    return {digest: latency for digest, latency in session.execute(query) if latency is not None}


def _row(job_id: str, task: TuningTask) -> TuningTaskRow:
    extracted = task.extracted
    return TuningTaskRow(
        job_id=job_id,
        position=extracted.position,
        name=extracted.name,
        workload_digest=digest_of(extracted.workload_key),
        workload_key=extracted.workload_key,
        description=extracted.description,
        weight=extracted.weight,
        flop=extracted.flop,
        space_size=extracted.space_size,
        trials_planned=task.trials_planned,
    )


def _extracted(row: TuningTaskRow) -> ExtractedTask:
    return ExtractedTask(
        position=row.position,
        name=row.name,
        workload_key=row.workload_key,
        description=row.description,
        weight=row.weight,
        flop=row.flop,
        space_size=row.space_size,
    )
