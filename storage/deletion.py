"""Deleting models and artifacts: their rows stay for the history of jobs, their bytes go later.

``storage.garbage`` removes bytes that nothing names any more, so that a mistake here, or a copy of the database that
was put back, costs no bytes for some hours.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import Artifact
from domain.jobs import FINAL_STATES
from domain.models import Model
from storage import statements
from storage.tables import ArtifactRow, JobRow, ModelOwnerRow, ModelRow

_NAMED = 20
"""Jobs that an error lists at most."""


def delete_model(session: Session, model: Model, *, owner: str | None, now: datetime) -> bool:
    """The owner no longer has it, or with None nobody; returns whether it is gone, because nobody has it any more.

    Its artifacts go with it. Raises ModelInUse.
    """
    # Nobody can make a job of it until this transaction ends.
    session.execute(select(ModelRow.digest).where(ModelRow.digest == model.digest).with_for_update())
    others = select(ModelOwnerRow.owner).where(ModelOwnerRow.model_digest == model.digest, ModelOwnerRow.owner != owner)
    is_last = owner is None or session.scalar(others.limit(1)) is None
    _check_unused(session, model, None if is_last else owner)
    owned = delete(ModelOwnerRow).where(ModelOwnerRow.model_digest == model.digest)
    statements.changed(session, owned if is_last else owned.where(ModelOwnerRow.owner == owner))
    if is_last:
        gone = update(ModelRow).where(ModelRow.digest == model.digest, ModelRow.deleted_at.is_(None))
        statements.changed(session, gone.values(deleted_at=now))
        _delete_artifacts(session, ArtifactRow.model_digest == model.digest, now)
    return is_last


def delete_artifact(session: Session, artifact: Artifact, *, now: datetime) -> None:
    _delete_artifacts(session, ArtifactRow.id == artifact.id, now)


def _delete_artifacts(session: Session, which: ColumnElement[bool], now: datetime) -> None:
    rows = update(ArtifactRow).where(which, ArtifactRow.deleted_at.is_(None))
    statements.changed(session, rows.values(deleted_at=now))


def _check_unused(session: Session, model: Model, owner: str | None) -> None:
    """``owner``: whose jobs count; None for everyone's."""
    unfinished = select(JobRow.id).where(JobRow.model_digest == model.digest, JobRow.state.not_in(FINAL_STATES))
    if owner is not None:
        unfinished = unfinished.where(JobRow.owner == owner)
    found = list(session.scalars(unfinished.order_by(JobRow.created_at).limit(_NAMED)))
    if found:
        raise errors.ModelInUse(f"jobs of model {model.id} have not ended", details={"jobs": found})
