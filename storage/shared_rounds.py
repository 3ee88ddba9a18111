"""Rounds of a job's trials that other workers may claim.

::

    open ──claim──▶ claimed ──finish──▶ done
      │                └─give_back, expire, abandon──▶ lost
      └─withdraw──▶ withdrawn

An index ensures that at most one round per workload is open or claimed. A claimant's writes name its claim and the
attempt under which the round was offered; they have no effect once the round or the job belongs to another worker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, delete, func, select, text, update
from sqlalchemy.orm import Session

from domain.jobs import LEASED_STATES, Failure, JobState
from domain.shared_rounds import AT_WORK, Offer, RoundState, SharedRound
from storage import codec, statements
from storage.tables import JobRow, SharedRoundRow, workload_digest

_TRIED_AT_ONCE = 8
"""Open rounds that a claim tries in turn if others are faster."""


def open_round(session: Session, job_id: str, attempt: int, offer: Offer, *, now: datetime) -> SharedRound:
    """Offer trials; the caller must hold the job's lease. Raises IntegrityError if the workload already has a round."""
    row = SharedRoundRow(
        job_id=job_id,
        attempt=attempt,
        state=RoundState.OPEN,
        workload_digest=workload_digest(offer.workload_key),
        opened_at=now,
        **codec.dump(offer),
    )
    session.add(row)
    session.flush()
    return _round(row)


def claim(
    session: Session,
    job_id: str,
    *,
    worker_id: str,
    lock_place: str,
    device_key: str,
    toolchains: Collection[str],
    now: datetime,
    lease_seconds: float,
) -> SharedRound | None:
    """Claim an open round that the worker can measure; one that it searched last is preferred, one of another
    worker comes last."""
    known = case((SharedRoundRow.known_to == worker_id, 0), (SharedRoundRow.known_to.is_(None), 1), else_=2)
    query = (
        select(SharedRoundRow.id)
        .join(JobRow, JobRow.id == SharedRoundRow.job_id)
        .where(
            SharedRoundRow.job_id == job_id,
            SharedRoundRow.state == RoundState.OPEN,
            SharedRoundRow.device_key == device_key,
            SharedRoundRow.toolchain.in_(toolchains),
            SharedRoundRow.lock_place != lock_place,
            *_led(),
            JobRow.state == JobState.RUNNING,
        )
        .order_by(known, SharedRoundRow.id)
        .limit(_TRIED_AT_ONCE)
    )
    for found in session.scalars(query).all():
        expires = now + timedelta(seconds=lease_seconds)
        still = and_(SharedRoundRow.id == found, SharedRoundRow.state == RoundState.OPEN)
        if _set(session, still, state=RoundState.CLAIMED, worker_id=worker_id, lease_expires_at=expires):
            return get(session, found)
    return None


def get(session: Session, round_id: int) -> SharedRound:
    return of_ids(session, [round_id])[0]


def of_ids(session: Session, round_ids: Collection[int]) -> list[SharedRound]:
    query = select(SharedRoundRow).where(SharedRoundRow.id.in_(round_ids)).order_by(SharedRoundRow.id)
    return [_round(row) for row in session.scalars(query, execution_options={"populate_existing": True})]


def renew(session: Session, claimed: SharedRound, *, now: datetime, lease_seconds: float) -> bool:
    """Renew the claim, even an expired one, unless the round was taken back."""
    return holds(session, claimed) and _set(
        session, _held(claimed), lease_expires_at=now + timedelta(seconds=lease_seconds)
    )


def holds(session: Session, claimed: SharedRound) -> bool:
    """Return whether the claimant still has the round and the leader the job.

    The former stays true until the transaction ends, and a new leader of the job first abandons its rounds.
    """
    query = select(SharedRoundRow.id).join(JobRow, JobRow.id == SharedRoundRow.job_id)
    query = query.where(_held(claimed), *_led(), JobRow.state.in_(LEASED_STATES))
    return session.scalar(query.with_for_update(of=SharedRoundRow)) is not None


def is_wanted(session: Session, claimed: SharedRound) -> bool:
    """Return whether the round is still needed: not once its job is being canceled."""
    query = select(SharedRoundRow.id).join(JobRow, JobRow.id == SharedRoundRow.job_id)
    return session.scalar(query.where(_held(claimed), *_led(), JobRow.state == JobState.RUNNING)) is not None


def finish(
    session: Session,
    claimed: SharedRound,
    *,
    seconds: float,
    exhausted: bool,
    default_latency: float | None = None,
    failure: Failure | None = None,
) -> bool:
    """Finish the round with its result; its trials are in the records."""
    return holds(session, claimed) and _set(
        session,
        _held(claimed),
        state=RoundState.DONE,
        seconds=seconds,
        exhausted=exhausted,
        default_latency=default_latency,
        failure=codec.dump(failure) if failure else None,
    )


def give_back(session: Session, claimed: SharedRound, *, seconds: float) -> bool:
    """Return the round unfinished; its stored trials are kept."""
    return _set(session, _held(claimed), state=RoundState.LOST, seconds=seconds)


def withdraw(session: Session, round_ids: Collection[int]) -> list[int]:
    """Withdraw rounds that were not claimed, and return them."""
    return [
        each
        for each in round_ids
        if _set(
            session,
            and_(SharedRoundRow.id == each, SharedRoundRow.state == RoundState.OPEN),
            state=RoundState.WITHDRAWN,
        )
    ]


def expire(session: Session, round_ids: Collection[int], *, now: datetime) -> int:
    """Take back the rounds of claimants without a heartbeat; returns the number."""
    silent = and_(
        SharedRoundRow.id.in_(round_ids),
        SharedRoundRow.state == RoundState.CLAIMED,
        SharedRoundRow.lease_expires_at <= now,
    )
    return statements.changed(session, update(SharedRoundRow).where(silent).values(state=RoundState.LOST))


def abandon(session: Session, job_id: str, *, but: Collection[int] = ()) -> int:
    """Take back all rounds of the job, except ``but``; returns how many were claimed.

    Claimants cannot store trials afterwards, so later counts do not change.
    """
    at_work = and_(
        SharedRoundRow.job_id == job_id, SharedRoundRow.state.in_(AT_WORK), SharedRoundRow.id.not_in(list(but))
    )
    return statements.changed(session, update(SharedRoundRow).where(at_work).values(state=RoundState.LOST))


def offering(session: Session, *, lock_place: str) -> list[str]:
    """Return the ids of jobs with claimable rounds for other workers, oldest job first."""
    # A literal, as in the partial index, which a parameter would not match.
    query = select(SharedRoundRow.job_id).where(
        text("state IN ('open', 'claimed')"),
        SharedRoundRow.state == RoundState.OPEN,
        SharedRoundRow.lock_place != lock_place,
    )
    return list(session.scalars(query.distinct().order_by(SharedRoundRow.job_id)))


def tuners(session: Session, job_id: str, *, lock_place: str, device_key: str) -> list[str]:
    """Return the tuners of rounds that a worker of this place and device can claim."""
    query = select(SharedRoundRow.tuner).where(
        SharedRoundRow.job_id == job_id,
        SharedRoundRow.state == RoundState.OPEN,
        SharedRoundRow.lock_place != lock_place,
        SharedRoundRow.device_key == device_key,
    )
    return list(session.scalars(query.distinct()))


def is_led(session: Session, job_id: str) -> bool:
    """Return whether the job has a worker that may offer rounds."""
    return session.scalar(select(JobRow.id).where(JobRow.id == job_id, JobRow.state == JobState.RUNNING)) is not None


def counts(session: Session, job_id: str) -> dict[str, int]:
    """Return the numbers of ended rounds by worker id."""
    query = (
        select(SharedRoundRow.worker_id, func.count())
        .where(SharedRoundRow.job_id == job_id, SharedRoundRow.state == RoundState.DONE)
        .group_by(SharedRoundRow.worker_id)
    )
    return {worker_id: number for worker_id, number in session.execute(query) if worker_id is not None}


def forget(session: Session, job_id: str) -> int:
    """Remove the job's rounds after its search."""
    return statements.changed(session, delete(SharedRoundRow).where(SharedRoundRow.job_id == job_id))


def _led() -> Sequence[ColumnElement[bool]]:
    """Condition: the job still has the lease under which the round was offered."""
    return (JobRow.claims == SharedRoundRow.attempt, JobRow.worker_id.is_not(None))


def _held(claimed: SharedRound) -> ColumnElement[bool]:
    return and_(
        SharedRoundRow.id == claimed.id,
        SharedRoundRow.state == RoundState.CLAIMED,
        SharedRoundRow.worker_id == claimed.worker_id,
    )


def _set(session: Session, condition: ColumnElement[bool], **values: Any) -> bool:
    return statements.changed(session, update(SharedRoundRow).where(condition).values(**values)) == 1


def _round(row: SharedRoundRow) -> SharedRound:
    return codec.from_row(SharedRound, row, offer=codec.from_row(Offer, row))
