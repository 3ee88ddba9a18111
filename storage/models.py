"""Uploaded models."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Select, or_, select, update
from sqlalchemy.orm import Session

from domain import errors, ids
from domain.digests import ModelDigest
from domain.models import Model, ModelFacts
from storage import codec, paging, statements
from storage.tables import ModelOwnerRow, ModelRow


def add(
    session: Session, *, digest: ModelDigest, name: str, size_bytes: int, facts: ModelFacts, now: datetime
) -> tuple[Model, bool]:
    """Add a model and return it, and whether it is new; an existing one keeps its name, unless it was deleted."""
    statements.lock_digest(session, digest)
    row = {
        "digest": digest,
        "id": _free_id(session, digest),
        "name": name,
        "size_bytes": size_bytes,
        "facts": codec.dump(facts),
        "created_at": now,
    }
    created = statements.add_missing(session, ModelRow, [row], key=["digest"])
    again = update(ModelRow).where(ModelRow.digest == digest, ModelRow.deleted_at.is_not(None))
    restored = statements.changed(session, again.values(deleted_at=None, name=name))
    return get(session, digest), bool(created or restored)


def get(session: Session, id_or_digest: str) -> Model:
    """Return a model, also a deleted one. Raises ModelNotFound."""
    wanted = or_(ModelRow.id == id_or_digest, ModelRow.digest == id_or_digest)
    row = session.scalar(select(ModelRow).where(wanted), execution_options={"populate_existing": True})
    if row is None:
        raise errors.ModelNotFound(f"there is no model {id_or_digest[:80]!r}")
    return _model(row)


def page(
    session: Session,
    *,
    owner: str | None = None,
    name: str | None = None,
    limit: int,
    page_token: str | None = None,
) -> tuple[list[Model], str | None]:
    """Return a page of models whose names contain ``name``, newest first, without deleted ones. Raises
    InvalidPageToken."""
    query = select(ModelRow).where(ModelRow.deleted_at.is_(None))
    if name:
        query = query.where(ModelRow.name.icontains(name, autoescape=True))
    if owner is not None:
        query = query.where(ModelRow.digest.in_(owned_by(owner)))
    return paging.page(session, query, ModelRow, _model, limit=limit, page_token=page_token)


def owned_by(owner: str) -> Select[str]:
    """Query the digests of the owner's models."""
    return select(ModelOwnerRow.model_digest).where(ModelOwnerRow.owner == owner)


def _free_id(session: Session, digest: ModelDigest) -> str:
    """Return an unused id. Twelve hex digits can be made to collide on purpose; a second model then gets all
    sixty-four."""
    short = ids.model(digest)
    taken = session.scalar(select(ModelRow.digest).where(ModelRow.id == short, ModelRow.digest != digest))
    return f"m-{digest}" if taken else short


def _model(row: ModelRow) -> Model:
    return codec.from_row(Model, row)
