"""Measured records of all jobs, and statistics of trial rates. ``imports`` has what callers brought."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice
from statistics import median
from typing import Any, Unpack

from sqlalchemy import ColumnElement, Row, Select, and_, func, not_, or_, select, update
from sqlalchemy.orm import Session, aliased

from domain.digests import ScheduleDigest, WorkloadDigest
from domain.jobs import Placement, Stage
from domain.records import ImportedRecord, Record, RecordKey, RecordPlace, TrialError
from domain.stage_results import TuneResult
from storage import codec, statements
from storage.tables import JobRow, RecordRow, StageRow, TuningTaskRow, workload_digest

_WORKLOADS_TO_LEARN_FROM = 64
_SLOWER_THAN_ANY = 1e300
SECONDS_A_TRIAL = 0.5
"""Assumed for a device without trials: AutoTVM's candidates of small networks took 0.2 to 0.4 s on two cores
with warm workers; larger ones and other tuners take longer."""
_JOBS = 5
_LOOKED_AT = 4 * _JOBS
"""The latest jobs include those of other tuners on the same toolchain."""
_LEAST_TRIALS = 32
"""With fewer trials, the start of the engine dominates, and the rate does not predict the next job."""


def add(session: Session, records: Iterable[Record]) -> int:
    """Store the records whose schedule the job has not measured yet; returns their number."""
    key = ("job_id", "workload_digest", "schedule_digest")
    return statements.add_missing(session, RecordRow, [row_of(record) for record in records], key=key)


def of_job(session: Session, job_id: str, workload_key: str | None = None) -> list[Record]:
    """Return the job's records in the order in which they were stored."""
    query = select(RecordRow).where(RecordRow.job_id == job_id).order_by(RecordRow.id)
    if workload_key is not None:
        query = query.where(RecordRow.workload_digest == workload_digest(workload_key))
    return [from_row(row) for row in session.scalars(query)]


def of_key(session: Session, key: RecordKey) -> list[Record]:
    """Return all trials of a key, including failed ones, in the order in which they were stored."""
    wanted = matching([workload_digest(key.workload_key)], **key.place)
    return [from_row(row) for row in session.scalars(select(RecordRow).where(*wanted).order_by(RecordRow.id))]


def best(session: Session, key: RecordKey) -> Record | None:
    """Return the fastest record by mean latency, of any tuner."""
    found = best_of_many(session, [key.workload_key], **key.place)
    return found.get(key.workload_key)


def best_of_many(
    session: Session,
    workload_keys: Sequence[str],
    *,
    tuner: str | None = None,
    **place: Unpack[RecordPlace],
) -> dict[str, Record]:
    """Return the fastest valid record of each workload that has one; of equal ones, the oldest."""
    found = top_of_many(session, workload_keys, tuner=tuner, top=1, **place)
    return {workload_key: records[0] for workload_key, records in found.items()}


def top_of_many(
    session: Session,
    workload_keys: Sequence[str],
    *,
    tuner: str | None = None,
    top: int,
    **place: Unpack[RecordPlace],
) -> dict[str, list[Record]]:
    """Return the ``top`` fastest valid records of each workload that has any, fastest first; of equal ones,
    the oldest."""
    found: dict[str, list[Record]] = {}
    for digests in map(list, statements.workloads_at_once(workload_keys)):
        for row in _fastest(session, digests, tuner, top, **place):
            found.setdefault(row.workload_key, []).append(from_row(row))
    return found


def count(session: Session, key: RecordKey) -> int:
    """Count all trials of a key, including failed ones."""
    query = select(func.count()).where(*matching([workload_digest(key.workload_key)], **key.place))
    return session.scalar(query) or 0


def counts_of_many(
    session: Session,
    workload_keys: Sequence[str],
    *,
    excluding_job: str | None = None,
    **place: Unpack[RecordPlace],
) -> dict[str, int]:
    """Count all trials of each workload, including failed ones; workloads without trials are omitted."""
    found: Counter[str] = Counter()
    for key_of in statements.workloads_at_once(workload_keys):
        wanted = matching(key_of, **place)
        query = select(RecordRow.workload_digest, func.count()).where(*wanted).group_by(RecordRow.workload_digest)
        for digest, number in session.execute(query):
            found[key_of[digest]] += number
        if excluding_job is not None:
            # One index has the job's own records and another all records; none has those of all other jobs.
            for digest, number in session.execute(query.where(RecordRow.job_id == excluding_job)):
                found[key_of[digest]] -= number
    return dict(+found)


def passed_over(session: Session, workload_keys: Sequence[str], **place: Unpack[RecordPlace]) -> dict[str, int]:
    """Count the records of these workloads that cannot be applied, by the first difference.

    The kinds are ``toolchain``, ``device`` and ``target``, in this order; kinds without records are omitted.
    """
    # In index order, workload first, the database counts while reading, without sorting.
    identity = (RecordRow.workload_digest, RecordRow.target, RecordRow.device_key, RecordRow.toolchain)
    found: Counter[str] = Counter()
    for digests in map(list, statements.workloads_at_once(workload_keys)):
        query = select(*identity, func.count()).where(RecordRow.workload_digest.in_(digests)).group_by(*identity)
        for _, other_target, other_device, other_toolchain, number in session.execute(query):
            if other_toolchain != place["toolchain"]:
                found["toolchain"] += number
            elif other_device != place["device_key"]:
                found["device"] += number
            elif other_target != place["target"]:
                found["target"] += number
    return dict(found)


def transfer_candidates(
    session: Session,
    name: str,
    *,
    excluding_workload: str,
    tuner: str,
    limit: int,
    **place: Unpack[RecordPlace],
) -> list[Record]:
    """Return the fastest records of other workloads with this task name, to train a cost model on.

    At most ``limit``, distributed evenly over up to 64 workloads.
    """
    other = select(TuningTaskRow.workload_digest).where(
        TuningTaskRow.name == name, TuningTaskRow.workload_digest != workload_digest(excluding_workload)
    )
    digests = list(session.scalars(other.distinct().limit(_WORKLOADS_TO_LEARN_FROM)))
    if not digests or limit <= 0:
        return []
    share = max(1, limit // len(digests))
    found = _fastest(session, digests, tuner, share, **place)
    return [from_row(row) for row in islice(found, limit)]


def count_of_job(session: Session, job_id: str) -> int:
    return session.scalar(select(func.count()).where(RecordRow.job_id == job_id)) or 0


def failures_of_job(session: Session, job_id: str) -> dict[TrialError, int]:
    """Return the number of failed trials by kind."""
    query = select(RecordRow.error, func.count()).where(RecordRow.job_id == job_id, RecordRow.error.is_not(None))
    found = session.execute(query.group_by(RecordRow.error))
    return {TrialError(error): count for error, count in found if error}


def set_aside(session: Session, job_id: str, *placements: Placement) -> int:
    """Detach the job's records of other placements from the job, but keep them; returns their number.

    A job that continues on another machine measures the same schedules again there.
    """
    here = or_(*(and_(*_at(RecordRow, **placement.record_place)) for placement in placements))
    former = f"{job_id}:{secrets.token_hex(4)}"
    elsewhere = update(RecordRow).where(RecordRow.job_id == job_id, not_(here)).values(job_id=former)
    return statements.changed(session, elsewhere)


def invalidate(
    session: Session,
    key: RecordKey,
    schedule_digest: ScheduleDigest,
    *,
    error: TrialError,
    message: str,
    rewrite: Callable[[str], str],
) -> int:
    """Convert all valid records of a schedule to failures, so that it is not used again; returns their number.

    ``rewrite`` converts the native line, as histories and exports consist of lines.
    """
    wanted = matching([workload_digest(key.workload_key)], **key.place)
    valid = select(RecordRow).where(
        *wanted, RecordRow.schedule_digest == schedule_digest, RecordRow.latency.is_not(None)
    )
    rows = list(session.scalars(valid))
    for row in rows:
        row.latency, row.latencies = None, []
        row.error, row.error_message = error, message
        row.schedule = rewrite(row.schedule)
    session.flush()
    return len(rows)


def matching(digests: Collection[WorkloadDigest], **place: Unpack[RecordPlace]) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of records of these workloads at a place."""
    return RecordRow.workload_digest.in_(digests), *_at(RecordRow, **place)


def _at(row: type[RecordRow], **place: Unpack[RecordPlace]) -> list[ColumnElement[bool]]:
    return [getattr(row, name) == value for name, value in place.items()]


def _fastest(
    session: Session,
    digests: Sequence[WorkloadDigest],
    tuner: str | None,
    top: int,
    **place: Unpack[RecordPlace],
) -> Iterator[Row[Any]]:
    """Return the ``top`` fastest valid rows of each workload, fastest first; of equal ones, the oldest."""
    query = _fastest_and_equals(session, digests, tuner, top, **place)
    for _, rows in groupby(session.execute(query), key=lambda row: row.workload_digest):
        yield from islice(rows, top)


def _fastest_and_equals(
    session: Session,
    digests: Sequence[WorkloadDigest],
    tuner: str | None,
    top: int,
    **place: Unpack[RecordPlace],
) -> Select[Any]:
    """Return the ``top`` fastest valid rows of each workload, and those as fast as the last of them.

    Reads the index from the fastest row to that one, however many rows there are.
    """
    digest = statements.each_of(session, digests)
    ranked = aliased(RecordRow)
    slowest = select(ranked.latency).where(*_valid(ranked, digest, tuner, **place))
    slowest = slowest.order_by(ranked.latency).limit(1).offset(top - 1).correlate(digest.table)
    # All of them if there are fewer.
    bound = func.coalesce(slowest.scalar_subquery(), _SLOWER_THAN_ANY)
    valid = _valid(RecordRow, digest, tuner, **place)
    return (
        select(*RecordRow.__table__.c)
        .join(digest.table, and_(*valid, RecordRow.latency <= bound))
        .order_by(RecordRow.workload_digest, RecordRow.latency, RecordRow.id)
    )


def _valid(
    row: type[RecordRow],
    digest: ColumnElement[str],
    tuner: str | None,
    **place: Unpack[RecordPlace],
) -> list[ColumnElement[bool]]:
    conditions = [
        row.workload_digest == digest,
        *_at(row, **place),
        row.latency.is_not(None),
    ]
    return conditions if tuner is None else [*conditions, row.tuner == tuner]


def row_of(record: Record | ImportedRecord) -> dict[str, Any]:
    """Return the values of a new row."""
    return {
        **vars(record.key),
        **{name: value for name, value in vars(record).items() if name not in ("key", "id")},
        "workload_digest": workload_digest(record.key.workload_key),
        "latency": record.latency if record.error is None else None,
        "latencies": list(record.latencies),
    }


def from_row(row: RecordRow | Row[Any]) -> Record:
    return codec.from_row(Record, row, key=codec.from_row(RecordKey, row))


def seconds_a_trial(session: Session, *, device_key: str, toolchain: str, tuner: str) -> float | None:
    """Return the median seconds per trial of this tuner on this device over the latest jobs; None if too few are
    stored.

    The time includes all attempts, starting engines and choosing candidates, which are part of the cost of a trial.
    """
    latest = (
        select(StageRow.outcome)
        .join(JobRow, JobRow.id == StageRow.job_id)
        .where(
            JobRow.device_key == device_key,
            JobRow.toolchain == toolchain,
            JobRow.trials_done >= _LEAST_TRIALS,
            StageRow.stage == Stage.TUNE,
        )
        .order_by(JobRow.created_at.desc())
        .limit(_LOOKED_AT)
    )
    paces = [_pace(codec.try_load(TuneResult, stored), tuner) for stored in session.scalars(latest)]
    known = [pace for pace in paces if pace is not None]
    return median(known[:_JOBS]) if known else None


def _pace(result: TuneResult | None, tuner: str) -> float | None:
    """Return the seconds per trial over all strategies with the tuner; None if other workers helped, whose
    time is not counted."""
    if result is None or result.helpers:
        return None
    searched = [strategy for strategy in result.strategies if strategy.tuner == tuner]
    trials, seconds = sum(each.trials for each in searched), sum(each.seconds for each in searched)
    return seconds / trials if trials >= _LEAST_TRIALS and seconds > 0 else None
