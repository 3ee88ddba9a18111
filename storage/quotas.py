"""Usage of quotas, and their checks.

Functions that lock the token do so until the transaction ends, so that concurrent requests cannot exceed the quota.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import func, select, union
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import LEASED_STATES, JobState
from domain.tokens import Principal, Quota
from storage import codec, statements
from storage.tables import ArtifactRow, DataSetRow, JobRow, ModelOwnerRow, ModelRow, TokenRow


def jobs_of(session: Session, token_id: str | None, *states: JobState) -> int:
    """Count the token's jobs in these states, without parts."""
    own = (JobRow.token_id == token_id, JobRow.part_of.is_(None))
    counted = select(func.count()).where(*own, JobRow.state.in_(states))
    return session.scalar(counted) or 0


def check_queued(session: Session, token_id: str) -> None:
    """Check that the locked token may have another queued job. Raises QuotaExceeded."""
    most = _locked(session, token_id).queued_jobs
    if most is not None and jobs_of(session, token_id, JobState.QUEUED) >= most:
        raise errors.QuotaExceeded(
            f"the token has reached its limit of {most} queued job{'' if most == 1 else 's'}",
            details={"quota": "queued_jobs", "limit": most},
        )


def lock(session: Session, principal: Principal) -> None:
    """Lock all tokens of the owner, whose stored bytes count together, until the transaction ends."""
    # In a fixed order, to avoid deadlocks.
    session.scalars(
        select(TokenRow.id).where(TokenRow.owner == principal.owner).order_by(TokenRow.id).with_for_update()
    ).all()


def check_stored(session: Session, principal: Principal, more_bytes: int) -> None:
    """Check that the principal's owner may store ``more_bytes``, without a lock. Raises QuotaExceeded."""
    most = principal.quota.stored_bytes
    if most is None:
        return
    stored = stored_bytes(session, principal.owner)
    if stored + more_bytes > most:
        raise exceeded_bytes(most, stored)


def exceeded_bytes(most: int, stored: int) -> errors.QuotaExceeded:
    return errors.QuotaExceeded(
        f"the owner's storage limit is {most} bytes, and {stored} are used: the upload does not fit",
        hint="An admin can create a token with a larger quota.",
        details={"quota": "stored_bytes", "limit": most, "stored": stored},
    )


def sizes_of_uploads(session: Session, owner: str) -> frozenset[int]:
    """Return the sizes in bytes of the models and data sets that the owner uploaded."""
    sizes = select(ModelRow.size_bytes).join(ModelOwnerRow, ModelOwnerRow.model_digest == ModelRow.digest)
    data = select(DataSetRow.size_bytes).where(DataSetRow.owner == owner, DataSetRow.deleted_at.is_(None))
    return frozenset(session.scalars(union(sizes.where(ModelOwnerRow.owner == owner), data)))


def has_room(session: Session, token_id: str) -> bool:
    """Return whether the locked token may have another running job."""
    most = _locked(session, token_id).running_jobs
    return most is None or jobs_of(session, token_id, *LEASED_STATES) < most


def rooms(session: Session) -> Mapping[str, int]:
    """Return how many more jobs may run for each token with queued jobs and a limit."""
    # One index lookup per token instead of one per queued job.
    has_queued = select(JobRow.id).where(JobRow.token_id == TokenRow.id, JobRow.state == JobState.QUEUED).exists()
    found = session.execute(select(TokenRow.id, TokenRow.quota).where(has_queued))
    limits = {token_id: codec.load(Quota, quota).running_jobs for token_id, quota in found}
    return {
        token_id: max(0, most - jobs_of(session, token_id, *LEASED_STATES))
        for token_id, most in limits.items()
        if most is not None
    }


def held(session: Session, job_ids: Collection[str]) -> frozenset[str]:
    """Return those of the jobs that wait because their token has reached its running-job limit."""
    full = [token_id for token_id, room in rooms(session).items() if not room]
    if not full:
        return frozenset()
    queued = select(JobRow.id).where(JobRow.state == JobState.QUEUED, JobRow.token_id.in_(full))
    return frozenset(session.scalars(queued.where(JobRow.id == statements.each_of(session, sorted(job_ids)))))


def stored_bytes(session: Session, owner: str) -> int:
    """Return the bytes of the owner's models, data sets and artifacts of its jobs, without deleted ones."""
    data = select(func.coalesce(func.sum(DataSetRow.size_bytes), 0))
    uploaded = select(func.coalesce(func.sum(ModelRow.size_bytes), 0)).join(
        ModelOwnerRow, ModelOwnerRow.model_digest == ModelRow.digest
    )
    published = select(func.coalesce(func.sum(ArtifactRow.size_bytes), 0)).join(JobRow, JobRow.id == ArtifactRow.job_id)
    sums = (
        uploaded.where(ModelOwnerRow.owner == owner),
        data.where(DataSetRow.owner == owner, DataSetRow.deleted_at.is_(None)),
        published.where(JobRow.owner == owner, ArtifactRow.deleted_at.is_(None)),
    )
    return sum(int(session.scalar(each) or 0) for each in sums)


def _locked(session: Session, token_id: str) -> Quota:
    quota = session.scalar(select(TokenRow.quota).where(TokenRow.id == token_id).with_for_update())
    return Quota() if quota is None else codec.load(Quota, quota)
