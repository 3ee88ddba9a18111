"""Deletion of models and artifacts: rows are kept for the history of jobs, blobs are removed later.

``storage.garbage`` removes unreferenced blobs after some hours, which leaves time to correct a mistake or to restore a
copy of the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, func, select, update
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import PART, Artifact
from domain.jobs import FINAL_STATES
from domain.models import Model
from storage import statements
from storage.tables import ArtifactRow, JobRow, ModelOwnerRow, ModelRow

_NAMED = 20
"""Maximum number of jobs that an error lists."""


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """The effects of deleting a model."""

    gone: bool
    """Whether it would be deleted for everyone; otherwise other owners keep it and its artifacts."""
    artifacts: int
    """Number of artifacts that would be deleted."""
    unfinished: list[str]
    """Unfinished jobs, which prevent the deletion; at most some of them."""


def foresee(session: Session, digest: str, *, owner: str | None) -> Prospect:
    """Return the effects of ``delete_model``, as of now."""
    is_last = _is_last(session, digest, owner)
    going = select(func.count()).where(ArtifactRow.model_digest == digest, ArtifactRow.deleted_at.is_(None))
    return Prospect(
        gone=is_last,
        artifacts=session.scalar(going) or 0 if is_last else 0,
        unfinished=_unfinished(session, digest, None if is_last else owner),
    )


def delete_model(session: Session, model: Model, *, owner: str | None, now: datetime) -> bool:
    """Remove the owner from the model, or with None all owners; returns whether it was deleted, as it has no owner
    left.

    Its artifacts are deleted, too. Raises ModelInUse.
    """
    # A concurrent upload of the same bytes is either seen below as an owner, or waits and restores the model.
    statements.lock_digest(session, model.digest)
    # And no job can be created for it.
    session.execute(select(ModelRow.digest).where(ModelRow.digest == model.digest).with_for_update())
    is_last = _is_last(session, model.digest, owner)
    if found := _unfinished(session, model.digest, None if is_last else owner):
        raise errors.ModelInUse(f"model {model.id} has unfinished jobs", details={"jobs": found})
    owned = delete(ModelOwnerRow).where(ModelOwnerRow.model_digest == model.digest)
    statements.changed(session, owned if is_last else owned.where(ModelOwnerRow.owner == owner))
    if is_last:
        gone = update(ModelRow).where(ModelRow.digest == model.digest, ModelRow.deleted_at.is_(None))
        statements.changed(session, gone.values(deleted_at=now))
        _delete_artifacts(session, ArtifactRow.model_digest == model.digest, now)
    return is_last


def delete_artifact(session: Session, artifact: Artifact, *, now: datetime) -> None:
    # A concurrent publication of the same bytes is either committed, or waits and restores the artifact.
    statements.lock_digest(session, artifact.digest)
    _delete_artifacts(session, ArtifactRow.id == artifact.id, now)


def delete_bundles_of_parts(session: Session, artifact_ids: list[str], *, now: datetime) -> None:
    """Delete those of the artifacts that are bundles of one of several sizes."""
    if artifact_ids:
        _delete_artifacts(session, and_(ArtifactRow.id.in_(artifact_ids), ArtifactRow.bundle_format == PART), now)


def _delete_artifacts(session: Session, which: ColumnElement[bool], now: datetime) -> None:
    rows = update(ArtifactRow).where(which, ArtifactRow.deleted_at.is_(None))
    statements.changed(session, rows.values(deleted_at=now))


def _is_last(session: Session, digest: str, owner: str | None) -> bool:
    """Return whether the owner is the only one; None, for an admin, acts for all owners."""
    if owner is None:
        return True
    others = select(ModelOwnerRow.owner).where(ModelOwnerRow.model_digest == digest, ModelOwnerRow.owner != owner)
    return session.scalar(others.limit(1)) is None


def _unfinished(session: Session, digest: str, owner: str | None) -> list[str]:
    """Return unfinished jobs; ``owner`` None counts those of all owners."""
    # Parts end with their jobs.
    own = (JobRow.model_digest == digest, JobRow.part_of.is_(None))
    unfinished = select(JobRow.id).where(*own, JobRow.state.not_in(FINAL_STATES))
    if owner is not None:
        unfinished = unfinished.where(JobRow.owner == owner)
    return list(session.scalars(unfinished.order_by(JobRow.created_at).limit(_NAMED)))
