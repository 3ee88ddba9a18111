"""Plans of jobs, the progress of their tuning tasks, and coverage by earlier searches.

Progress is derived from the records, so the two always agree. Coverage is computed alike for a plan and for the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Unpack

from sqlalchemy import ColumnElement, and_, delete, func, select, tuple_, update
from sqlalchemy.orm import Session

from domain.jobs import JobState
from domain.records import RecordPlace
from domain.tuning_tasks import Coverage, Effort, ExtractedTask, TuningTask
from storage import codec, records, statements
from storage.tables import JobRow, RecordRow, TuningTaskRow, workload_digest

ANOTHER_OWNERS = "of another owner"
"""In place of the id of another owner's job."""


def save_plan(session: Session, job_id: str, tasks: Sequence[TuningTask]) -> None:
    """Replace the plan; ``trials_done``, ``best_latency`` and ``failures`` of the tasks are not stored."""
    statements.changed(session, delete(TuningTaskRow).where(TuningTaskRow.job_id == job_id))
    session.add_all(_row(job_id, task) for task in tasks)
    session.flush()


def of_job(session: Session, job_id: str) -> list[TuningTask]:
    """Return the job's tasks in extraction order."""
    query = select(TuningTaskRow).where(TuningTaskRow.job_id == job_id).order_by(TuningTaskRow.position)
    rows = session.scalars(query).all()
    done, failures = _trials(session, job_id)
    best = _best(session, job_id)
    return [
        TuningTask(
            job_id=job_id,
            extracted=codec.from_row(ExtractedTask, row, definition=None),
            trials_planned=row.trials_planned,
            trials_done=done.get(row.workload_digest, 0),
            best_latency=best.get(row.workload_digest),
            failures=dict(failures[row.workload_digest]),
            effort=_effort(row),
        )
        for row in rows
    ]


def set_effort(session: Session, job_id: str, efforts: Mapping[str, Effort]) -> None:
    """Store what the job's completed search spent, by workload key."""
    for workload_key, effort in efforts.items():
        own = and_(TuningTaskRow.job_id == job_id, TuningTaskRow.workload_digest == workload_digest(workload_key))
        spent = {"effort_trials": effort.trials, "effort_seconds": effort.seconds}
        statements.changed(session, update(TuningTaskRow).where(own).values(**spent))


def efforts(
    session: Session,
    workload_keys: Sequence[str],
    *,
    excluding_job: str | None = None,
    **place: Unpack[RecordPlace],
) -> dict[str, Effort]:
    """Return the most trials and the most seconds that a completed search spent on each workload at this placement.

    The identities are those of ``RecordKey``. Workloads without a completed search are omitted.
    """
    found: dict[str, Effort] = {}
    for digests in statements.workloads_at_once(workload_keys):
        query = (
            select(
                TuningTaskRow.workload_key,
                func.max(TuningTaskRow.effort_trials),
                func.max(TuningTaskRow.effort_seconds),
            )
            .join(JobRow, JobRow.id == TuningTaskRow.job_id)
            .where(
                TuningTaskRow.workload_digest.in_(digests),
                TuningTaskRow.effort_trials.is_not(None),
                *_placed(**place),
            )
            .group_by(TuningTaskRow.workload_key)
        )
        if excluding_job is not None:
            query = query.where(TuningTaskRow.job_id != excluding_job)
        for workload_key, trials, seconds in session.execute(query):
            found[workload_key] = Effort(trials=trials or 0.0, seconds=seconds or 0.0)
    return found


def tuned_elsewhere(
    session: Session,
    job_id: str,
    workload_keys: Sequence[str],
    *,
    now: datetime,
    **place: Unpack[RecordPlace],
) -> dict[str, str]:
    """Return the workloads that an earlier job is searching now, with its id, which is hidden for other owners' jobs.

    Of several jobs the one created first owns a workload, so jobs never wait for each other in a cycle. A job owns the
    workloads that it planned trials for, while it has a live lease and its search has not ended.
    """
    created = select(JobRow.created_at).where(JobRow.id == job_id).scalar_subquery()
    own = session.scalar(select(JobRow.owner).where(JobRow.id == job_id))
    searching: dict[str, str] = {}
    for digests in statements.workloads_at_once(workload_keys):
        query = (
            select(TuningTaskRow.workload_key, JobRow.id, JobRow.owner)
            .join(JobRow, JobRow.id == TuningTaskRow.job_id)
            .where(
                TuningTaskRow.workload_digest.in_(digests),
                TuningTaskRow.trials_planned > 0,
                TuningTaskRow.effort_trials.is_(None),
                JobRow.state == JobState.RUNNING,
                JobRow.lease_expires_at > now,
                tuple_(JobRow.created_at, JobRow.id) < tuple_(created, job_id),
                *_placed(**place),
            )
            .order_by(JobRow.created_at, JobRow.id)
        )
        for workload_key, searcher, owner in session.execute(query):
            searching.setdefault(workload_key, searcher if owner == own else ANOTHER_OWNERS)
    return searching


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
    """Return the best latency of any job by workload digest, at the job's placement."""
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
    return TuningTaskRow(
        job_id=job_id,
        workload_digest=workload_digest(task.extracted.workload_key),
        trials_planned=task.trials_planned,
        effort_trials=task.effort.trials if task.effort else None,
        effort_seconds=task.effort.seconds if task.effort else None,
        **codec.to_row(task.extracted, without=["definition"]),
    )


def _effort(row: TuningTaskRow) -> Effort | None:
    if row.effort_trials is None or row.effort_seconds is None:
        return None
    return Effort(trials=row.effort_trials, seconds=row.effort_seconds)


def _placed(**place: Unpack[RecordPlace]) -> tuple[ColumnElement[bool], ...]:
    return tuple(JobRow.__table__.c[name] == value for name, value in place.items())


def coverage(
    session: Session,
    workload_keys: Sequence[str],
    *,
    excluding_job: str | None = None,
    **place: Unpack[RecordPlace],
) -> dict[str, Coverage]:
    """Return the coverage of every key; identities as in ``RecordKey``. Trials of ``excluding_job`` count
    towards its own plan."""
    best = records.best_of_many(session, workload_keys, **place)
    counts = records.counts_of_many(session, workload_keys, **place, excluding_job=excluding_job)
    known = efforts(session, workload_keys, **place, excluding_job=excluding_job)
    return {
        key: Coverage(
            trials=counts.get(key, 0),
            best_latency=best[key].latency if key in best else None,
            effort=known.get(key),
        )
        for key in workload_keys
    }


def bests_of_job(session: Session, job_id: str) -> dict[str, float]:
    """Return the best seconds by workload key, from the job's own records and older ones.

    A job that measured nothing gets the current best. For each workload, an index is read from the fastest record to
    the first that is old enough.
    """
    last = session.scalar(select(func.max(RecordRow.id)).where(RecordRow.job_id == job_id))
    best = select(RecordRow.latency).where(
        RecordRow.workload_digest == TuningTaskRow.workload_digest,
        RecordRow.target == JobRow.target,
        RecordRow.device_key == JobRow.device_key,
        RecordRow.toolchain == JobRow.toolchain,
        RecordRow.latency.is_not(None),
    )
    if last is not None:
        best = best.where(RecordRow.id <= last)
    fastest = best.order_by(RecordRow.latency).limit(1).correlate(TuningTaskRow, JobRow).scalar_subquery()
    query = (
        select(TuningTaskRow.workload_key, fastest)
        .join(JobRow, JobRow.id == TuningTaskRow.job_id)
        .where(TuningTaskRow.job_id == job_id)
    )
    return {key: latency for key, latency in session.execute(query) if latency is not None}
