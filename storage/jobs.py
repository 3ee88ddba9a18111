"""Jobs and their states; the only module that changes a state.

::

    queued ──claim──▶ running ──finish──▶ succeeded | failed | canceled
      ▲ │                │ │                                   ▲
      │ └─request_cancel─┼─┼───────────────────────────────────┤
      └─────release──────┘ └─request_cancel──▶ canceling ──finish, release

A job of several sizes has a part for each, which is a job as well. The worker that runs the job claims its parts by
their ids. The end of a job cancels its unfinished parts.

A successful change of state appends a ``state`` event in the same transaction, and the end of a job also creates its
webhook message. A worker's writes name its lease; without the lease, they return False and change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Unpack

from sqlalchemy import ColumnElement, and_, select, update
from sqlalchemy.orm import Session

from domain import errors, ids
from domain.artifacts import Runtime
from domain.jobs import (
    FINAL_STATES,
    LEASED_STATES,
    Budget,
    BundleFormat,
    EventKind,
    Failure,
    Job,
    JobRequest,
    JobState,
    Lease,
    Placement,
    Stage,
)
from domain.sizes import Size
from domain.tokens import LOCAL_OWNER
from process import tracing
from storage import codec, deletion, events, job_queries, paging, quotas, shared_rounds, statements, webhooks
from storage.job_queries import JobFilter
from storage.tables import JobLabelRow, JobRow, ModelRow

_LAST_DOUBLING = 7
"""Attempts after which the backoff stops doubling."""
_LATER = timedelta(minutes=1)
"""How long a job waits that was released for later."""


def create(
    session: Session, request: JobRequest, *, now: datetime, owner: str = LOCAL_OWNER, token_id: str | None = None
) -> Job:
    """Create a job, with a part for each size.

    Raises ModelNotFound if the request's model is not stored, ModelDeleted, and QuotaExceeded.
    """
    # Locked, so that the model is not deleted before the job refers to it.
    model = session.get(ModelRow, request.model_digest, with_for_update={"read": True, "key_share": True})
    if model is None:
        raise errors.ModelNotFound(f"there is no model {request.model_digest[:80]!r}")
    if model.deleted_at is not None:
        raise errors.ModelDeleted(f"model {model.id} was deleted")
    if token_id is not None:
        quotas.check_queued(session, token_id)
    job_id = _add(session, request, owner=owner, token_id=token_id, now=now)
    for number, size in enumerate(request.sizes, start=1):
        # A millisecond apart, so that their order is that of the sizes.
        at = now + timedelta(milliseconds=number)
        _add(session, _part(request, size), owner=owner, token_id=token_id, part_of=job_id, now=at)
    return get(session, job_id)


def _add(
    session: Session,
    request: JobRequest,
    *,
    owner: str,
    token_id: str | None,
    part_of: str | None = None,
    now: datetime,
) -> str:
    row = JobRow(
        id=ids.job(now),
        part_of=part_of,
        owner=owner,
        token_id=token_id,
        group_name=request.group,
        model_digest=request.model_digest,
        request=codec.dump(request),
        priority=request.priority,
        state=JobState.QUEUED,
        trace_parent=tracing.traceparent(),
        created_at=now,
    )
    session.add(row)
    session.flush()
    session.add_all(JobLabelRow(job_id=row.id, name=name, value=value) for name, value in request.labels.items())
    _announce(session, row.id, JobState.QUEUED, now=now)
    return row.id


def _part(request: JobRequest, size: Size) -> JobRequest:
    """Return the request of one size, with its share of the budget."""
    budget = request.budget
    return replace(
        request,
        input_shapes=size.input_shapes,
        sizes=(),
        padding={},
        budget=Budget(
            trials=None if budget.trials is None else max(1, round(budget.trials * size.share)),
            seconds=None if budget.seconds is None else budget.seconds * size.share,
            total_seconds=budget.total_seconds,
        ),
        # Only libraries can be joined.
        runtimes=(Runtime.TVM,),
        bundle_format=BundleFormat.SHARED,
        labels={},
        group=None,
    )


def get(session: Session, job_id: str) -> Job:
    """Return a job. Raises JobNotFound."""
    return _job(_row(session, job_id))


def parts(session: Session, job_id: str) -> list[Job]:
    """Return the parts of a job in the order of its sizes; none for a job of one size."""
    return [_job(row) for row in _parts(session, job_id)]


def page(
    session: Session, *, limit: int, page_token: str | None = None, **wanted: Unpack[JobFilter]
) -> tuple[list[Job], str | None]:
    """Return a page of jobs, newest first, without parts unless ``part_of`` is given. Raises InvalidPageToken."""
    query = select(JobRow).where(*job_queries.conditions(wanted))
    return paging.page(session, query, JobRow, _job, limit=limit, page_token=page_token)


def claim(
    session: Session,
    job_id: str,
    *,
    worker_id: str,
    now: datetime,
    lease_seconds: float,
    max_attempts: int,
    judging: datetime | None = None,
    pause: float = 0.0,
) -> Job | None:
    """Claim a queued job, or one whose lease expired, which keeps its state; None if it cannot be claimed.

    ``judging`` is the time by which leases of other workers have expired, by default ``now``. A job that lost its
    worker more than once rests before the next claim: ``pause`` seconds, doubled each time.

    A job without attempts left is ended instead: failed with the code of AttemptsExhausted, or canceled if that was
    requested. A job whose token has reached its running-job limit stays queued; parts do not count.

    Raises JobNotFound.
    """
    row = _row(session, job_id, lock=True)
    was_queued = row.state == JobState.QUEUED
    if not was_queued and not has_rested(row, judging or now, pause=pause, max_attempts=max_attempts):
        return None
    if row.attempts >= max_attempts:
        _give_up(session, row, now=now)
        return None
    limited = row.token_id if row.part_of is None else None
    if was_queued and limited is not None and not quotas.has_room(session, limited):
        return None
    won = _set(
        session,
        and_(JobRow.id == job_id, JobRow.state == row.state, JobRow.claims == row.claims),
        state=JobState.RUNNING if was_queued else row.state,
        claims=row.claims + 1,
        attempts=row.attempts + 1,
        worker_id=worker_id,
        lease_expires_at=now + timedelta(seconds=lease_seconds),
        started_at=row.started_at or now,
        waits_until=None,
    )
    if won and was_queued:
        _announce(session, job_id, JobState.RUNNING, now=now)
    return get(session, job_id) if won else None


def renew(session: Session, job_id: str, lease: Lease, *, now: datetime, lease_seconds: float) -> bool:
    """Renew the lease, even an expired one, unless another worker claimed the job."""
    return _set(session, _held(job_id, lease), lease_expires_at=now + timedelta(seconds=lease_seconds))


def holds(session: Session, job_id: str, lease: Lease) -> bool:
    """Lock the job and return whether the lease is current; it stays so until the transaction ends."""
    return session.scalar(select(JobRow.id).where(_held(job_id, lease)).with_for_update()) is not None


def is_owned(session: Session, job_id: str, owner: str) -> bool:
    """Return whether the job exists and is the owner's; also for the ids of records that ``records.set_aside`` set."""
    own = select(JobRow.id).where(JobRow.id == job_id.partition(":")[0], JobRow.owner == owner)
    return session.scalar(own) is not None


def set_stage(session: Session, job_id: str, lease: Lease, stage: Stage) -> bool:
    return _set(session, _held(job_id, lease), stage=stage)


def set_placement(session: Session, job_id: str, lease: Lease, placement: Placement) -> bool:
    return _set(session, _held(job_id, lease), placement=codec.dump(placement), **placement.record_place)


def set_progress(session: Session, job_id: str, lease: Lease, *, trials_done: int, trials_planned: int) -> bool:
    return _set(session, _held(job_id, lease), trials_done=trials_done, trials_planned=trials_planned)


def finish(
    session: Session,
    job_id: str,
    lease: Lease,
    *,
    state: JobState,
    failure: Failure | None = None,
    artifact_id: str | None = None,
    now: datetime,
) -> bool:
    """End the job with the worker's result, even if it is being canceled, as the work may already be complete."""
    if not state.is_final:
        raise ValueError(f"{state} ends no job")
    return _end(session, _held(job_id, lease), job_id, state, failure=failure, artifact_id=artifact_id, now=now)


def release(session: Session, job_id: str, lease: Lease, *, later: bool = False, now: datetime) -> bool:
    """Release the job unfinished, as at a worker's shutdown; the attempt does not count.

    It is queued again, or canceled if that was requested. With ``later``, it waits for a minute, to let others go
    first.
    """
    if _end(
        session, and_(_held(job_id, lease), JobRow.state == JobState.CANCELING), job_id, JobState.CANCELED, now=now
    ):
        return True
    released = _set(
        session,
        _held(job_id, lease),
        state=JobState.QUEUED,
        attempts=JobRow.attempts - 1,
        worker_id=None,
        lease_expires_at=None,
        waits_until=now + _LATER if later else None,
    )
    if released:
        _announce(session, job_id, JobState.QUEUED, now=now)
    return released


def request_cancel(session: Session, job_id: str, *, now: datetime) -> Job:
    """Cancel a queued job at once, or ask the worker of a running one to; repeating it has no effect.

    Raises JobNotFound, JobAlreadyFinished, and JobIsPart.
    """
    row = _row(session, job_id, lock=True)
    check_whole(_job(row))
    state = JobState(row.state)
    if state in FINAL_STATES:
        raise errors.JobAlreadyFinished(f"job {job_id} has already {_ENDED[state]}")
    if state == JobState.QUEUED:
        _end(session, and_(JobRow.id == job_id, JobRow.state == state), job_id, JobState.CANCELED, now=now)
    elif _set(session, and_(JobRow.id == job_id, JobRow.state == JobState.RUNNING), state=JobState.CANCELING):
        _announce(session, job_id, JobState.CANCELING, now=now)
        _cancel_parts(session, job_id, now=now)
    return get(session, job_id)


def check_whole(job: Job) -> None:
    """Raises JobIsPart for a part, which is not canceled or retried alone."""
    if job.part_of is not None:
        raise errors.JobIsPart(f"job {job.id} is one size of job {job.part_of}", details={"job": job.part_of})


def _cancel_parts(session: Session, job_id: str, *, now: datetime) -> None:
    """Cancel queued parts, and ask the worker to cancel the running one."""
    for part in _parts(session, job_id):
        own = JobRow.id == part.id
        _end(session, and_(own, JobRow.state == JobState.QUEUED), part.id, JobState.CANCELED, now=now)
        if _set(session, and_(own, JobRow.state == JobState.RUNNING), state=JobState.CANCELING):
            _announce(session, part.id, JobState.CANCELING, now=now)


def cancel_all(session: Session, *, reason: str, now: datetime) -> int:
    """Cancel all unfinished jobs, without webhook messages and whoever runs them, and return their number.

    For a database that no process uses. ``reason`` becomes a note of each job.
    """
    unfinished = select(JobRow.id).where(JobRow.state.not_in(FINAL_STATES), JobRow.part_of.is_(None))
    found = session.scalars(unfinished).all()
    for job_id in found:
        events.append(session, job_id, EventKind.NOTE, {"message": reason}, now=now)
        _end(session, JobRow.id == job_id, job_id, JobState.CANCELED, notifies=False, now=now)
    return len(found)


def has_rested(row: JobRow, judging: datetime, *, pause: float, max_attempts: int) -> bool:
    """Return whether the job's lease expired long enough before ``judging``; see ``claim``."""
    if row.state not in LEASED_STATES or row.lease_expires_at is None:
        return False
    rest = 0.0 if row.attempts >= max_attempts else _rest(row.attempts, pause)
    return row.lease_expires_at <= judging - timedelta(seconds=rest)


def expire_dead(session: Session, *, worker_ids: list[str], now: datetime) -> int:
    """Expire the leases of workers known to be dead, so that their jobs need not wait; returns the number."""
    theirs = and_(JobRow.worker_id.in_(worker_ids), JobRow.state.in_(LEASED_STATES), JobRow.lease_expires_at > now)
    return statements.changed(session, update(JobRow).where(theirs).values(lease_expires_at=now))


_ENDED = {JobState.SUCCEEDED: "succeeded", JobState.FAILED: "failed", JobState.CANCELED: "been canceled"}


def _row(session: Session, job_id: str, *, lock: bool = False) -> JobRow:
    query = select(JobRow).where(JobRow.id == job_id)
    row = session.scalar(query.with_for_update() if lock else query, execution_options={"populate_existing": True})
    if row is None:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    return row


def _parts(session: Session, job_id: str) -> Sequence[JobRow]:
    query = select(JobRow).where(JobRow.part_of == job_id).order_by(JobRow.created_at, JobRow.id)
    return session.scalars(query, execution_options={"populate_existing": True}).all()


def _held(job_id: str, lease: Lease) -> ColumnElement[bool]:
    return and_(
        JobRow.id == job_id,
        JobRow.state.in_(LEASED_STATES),
        JobRow.worker_id == lease.worker_id,
        JobRow.claims == lease.attempt,
    )


def _rest(attempts: int, pause: float) -> float:
    """Return the seconds between the end of a lease and the next attempt."""
    return 0.0 if attempts < 2 else pause * 2 ** (min(attempts, _LAST_DOUBLING) - 2)


def _give_up(session: Session, row: JobRow, *, now: datetime) -> None:
    canceled = row.state == JobState.CANCELING
    error = errors.AttemptsExhausted(f"the job was started {row.attempts} times and never ended")
    _end(
        session,
        and_(JobRow.id == row.id, JobRow.state == row.state, JobRow.claims == row.claims),
        row.id,
        JobState.CANCELED if canceled else JobState.FAILED,
        failure=None if canceled else Failure(code=error.code, message=error.message, hint=error.hint),
        now=now,
    )


def _set(session: Session, condition: ColumnElement[bool], **values: Any) -> bool:
    return statements.changed(session, update(JobRow).where(condition).values(**values)) == 1


def _end(
    session: Session,
    condition: ColumnElement[bool],
    job_id: str,
    state: JobState,
    *,
    failure: Failure | None = None,
    artifact_id: str | None = None,
    notifies: bool = True,
    now: datetime,
) -> bool:
    values: dict[str, Any] = {
        "state": state,
        "failure": codec.dump(failure) if failure else None,
        "artifact_id": artifact_id,
        "finished_at": now,
        "worker_id": None,
        "lease_expires_at": None,
    }
    won = _set(session, condition, **values)
    if won:
        _announce(session, job_id, state, failure=failure, now=now)
        if notifies:
            webhooks.enqueue(session, job_id, now=now)
        shared_rounds.forget(session, job_id)
        _end_parts(session, job_id, now=now)
    return won


def _end_parts(session: Session, job_id: str, *, now: datetime) -> None:
    """Cancel what is unfinished, and delete the bundles, each of which holds the weights twice: nothing needs them."""
    found = list(_parts(session, job_id))
    for part in found:
        unfinished = and_(JobRow.id == part.id, JobRow.state.not_in(FINAL_STATES))
        _end(session, unfinished, part.id, JobState.CANCELED, notifies=False, now=now)
    deletion.delete_bundles_of_parts(session, [part.artifact_id for part in found if part.artifact_id], now=now)


def _announce(session: Session, job_id: str, state: JobState, *, failure: Failure | None = None, now: datetime) -> None:
    data: dict[str, Any] = {"state": state.value}
    if failure:
        data["failure"] = codec.dump(failure)
    events.append(session, job_id, EventKind.STATE, data, now=now)


def _job(row: JobRow) -> Job:
    return codec.from_row(Job, row, lease=_lease(row))


def _lease(row: JobRow) -> Lease | None:
    if row.worker_id is None or row.lease_expires_at is None:
        return None
    return Lease(worker_id=row.worker_id, attempt=row.claims, expires_at=row.lease_expires_at)
