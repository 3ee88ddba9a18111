"""Deleting models and artifacts: their rows stay for the history of jobs, their bytes go later.

``storage.garbage`` removes bytes that nothing names any more, so that a mistake here, or a copy of the database that
was put back, costs no bytes for some hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import Artifact
from domain.jobs import FINAL_STATES
from domain.models import Model
from storage import statements
from storage.tables import ArtifactRow, JobRow, ModelOwnerRow, ModelRow

_NAMED = 20
"""Jobs that an error lists at most."""


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """What deleting a model would do."""

    gone: bool
    """For everyone; otherwise others keep it and its artifacts."""
    artifacts: int
    """That would go with it."""
    unfinished: list[str]
    """Jobs that forbid it, not all of many."""


def foresee(session: Session, digest: str, *, owner: str | None) -> Prospect:
    """Of ``delete_model``, which may find otherwise a moment later."""
    is_last = _is_last(session, digest, owner)
    going = select(func.count()).where(ArtifactRow.model_digest == digest, ArtifactRow.deleted_at.is_(None))
    return Prospect(
        gone=is_last,
        artifacts=session.scalar(going) or 0 if is_last else 0,
        unfinished=_unfinished(session, digest, None if is_last else owner),
    )


def delete_model(session: Session, model: Model, *, owner: str | None, now: datetime) -> bool:
    """The owner no longer has it, or with None nobody; returns whether it is gone, because nobody has it any more.

    Its artifacts go with it. Raises ModelInUse.
    """
    # Whoever uploads the same bytes right now is either seen below to own them, or waits and brings the model back.
    statements.lock_digest(session, model.digest)
    # Nor can anybody make a job of it.
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
    # A job that publishes the same bytes right now has either done so, or waits and brings them back.
    statements.lock_digest(session, artifact.digest)
    _delete_artifacts(session, ArtifactRow.id == artifact.id, now)


def _delete_artifacts(session: Session, which: ColumnElement[bool], now: datetime) -> None:
    rows = update(ArtifactRow).where(which, ArtifactRow.deleted_at.is_(None))
    statements.changed(session, rows.values(deleted_at=now))


def _is_last(session: Session, digest: str, owner: str | None) -> bool:
    """Whether nobody else has it; an admin's ``None`` acts for all who have."""
    if owner is None:
        return True
    others = select(ModelOwnerRow.owner).where(ModelOwnerRow.model_digest == digest, ModelOwnerRow.owner != owner)
    return session.scalar(others.limit(1)) is None


def _unfinished(session: Session, digest: str, owner: str | None) -> list[str]:
    """``owner``: whose jobs count; None for everyone's."""
    unfinished = select(JobRow.id).where(JobRow.model_digest == digest, JobRow.state.not_in(FINAL_STATES))
    if owner is not None:
        unfinished = unfinished.where(JobRow.owner == owner)
    return list(session.scalars(unfinished.order_by(JobRow.created_at).limit(_NAMED)))
