"""Who this database is, by which a store of blobs knows whose bytes it keeps."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain import ids
from storage import statements
from storage.tables import IdentityRow

_ONLY = 1


def known(session: Session) -> str | None:
    """None before anybody asked for it with ``own``."""
    return session.scalar(select(IdentityRow.id).where(IdentityRow.number == _ONLY))


def own(session: Session, *, now: datetime) -> str:
    """Made the first time; of several who ask at once, one makes it."""
    row = {"number": _ONLY, "id": ids.database(now), "made_at": now}
    statements.add_missing(session, IdentityRow, [row], key=["number"])
    return session.scalars(select(IdentityRow.id).where(IdentityRow.number == _ONLY)).one()


def renew(session: Session, *, now: datetime) -> str:
    """Another one than copies of this database have."""
    row = {"number": _ONLY, "id": ids.database(now), "made_at": now}
    statements.put(session, IdentityRow, row, key=["number"])
    return str(row["id"])
