"""Ownership of models, and what it lets a caller see.

A job belongs to its creator, a model to everyone who uploaded its bytes, an artifact to the owners of its model.
Objects of other owners do not exist for a caller, except for admins.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import Artifact
from domain.digests import ModelDigest
from domain.jobs import Job
from domain.models import Model
from domain.tokens import Principal, Scope
from storage import artifacts, jobs, models, statements
from storage.tables import JobRow, ModelOwnerRow


def visible(principal: Principal) -> str | None:
    """Return the owner whose objects the principal sees; None for all owners."""
    return None if principal.sees_all else principal.owner


def whose(principal: Principal, owner: str | None) -> str | None:
    """Return the owner to list objects of, given the requested ``owner``; None for all owners. Raises MissingScope."""
    if owner is not None and owner != principal.owner and not principal.sees_all:
        raise errors.MissingScope(
            f"only {owner!r} and admins can see these objects", details={"needed": Scope.ADMIN.value}
        )
    return owner or visible(principal)


def add_model(session: Session, digest: ModelDigest, owner: str, *, now: datetime) -> bool:
    """Make the owner an owner of the model; returns whether it was not one before."""
    row = {"model_digest": digest, "owner": owner, "created_at": now}
    return bool(statements.add_missing(session, ModelOwnerRow, [row], key=["model_digest", "owner"]))


def owns_model(session: Session, digest: ModelDigest, owner: str) -> bool:
    return session.get(ModelOwnerRow, (digest, owner)) is not None


def model(session: Session, id_or_digest: str, principal: Principal) -> Model:
    """Return a model. Raises ModelNotFound, and ModelDeleted for callers who had access to it."""
    found = models.get(session, id_or_digest)
    if found.deleted_at is not None and _knows(session, JobRow.model_digest == found.digest, principal):
        raise errors.ModelDeleted(f"model {found.id} was deleted on {found.deleted_at:%Y-%m-%d}")
    if not principal.sees_all and not owns_model(session, found.digest, principal.owner):
        raise errors.ModelNotFound(f"there is no model {id_or_digest[:80]!r}")
    return found


def job(session: Session, job_id: str, principal: Principal) -> Job:
    """Return a job. Raises JobNotFound."""
    found = jobs.get(session, job_id)
    if not principal.sees_all and found.owner != principal.owner:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    return found


def artifact(session: Session, id_or_digest: str, principal: Principal) -> Artifact:
    """Return an artifact. Raises ArtifactNotFound, and ArtifactDeleted for callers who had access to it."""
    found = artifacts.get(session, id_or_digest)
    if found.deleted_at is not None and (
        owns_model(session, found.model_digest, principal.owner)
        or _knows(session, JobRow.id == found.job_id, principal)
    ):
        raise errors.ArtifactDeleted(f"artifact {found.id} was deleted on {found.deleted_at:%Y-%m-%d}")
    if not principal.sees_all and not owns_model(session, found.model_digest, principal.owner):
        raise errors.ArtifactNotFound(f"there is no artifact {id_or_digest[:80]!r}")
    return found


def _knows(session: Session, of: ColumnElement[bool], principal: Principal) -> bool:
    """Return whether one of the jobs belongs to the principal, who therefore had access to its model and artifact."""
    return principal.sees_all or bool(session.scalar(select(JobRow.id).where(of, JobRow.owner == principal.owner)))


def jobs_of(session: Session, job_ids: Collection[str], principal: Principal) -> frozenset[str]:
    """Return those of the ids that name jobs which the principal may see."""
    if principal.sees_all:
        return frozenset(job_ids)
    wanted = statements.each_of(session, sorted(job_ids))
    return frozenset(session.scalars(select(JobRow.id).where(JobRow.id == wanted, JobRow.owner == principal.owner)))
