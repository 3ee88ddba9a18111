"""What one of all workers does now and then: whoever takes a chore first does it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session

from storage import statements
from storage.tables import ChoreRow

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def take(session: Session, name: str, *, every: timedelta, now: datetime) -> bool:
    """Whether the chore is due, and the caller's from now on. One that fails is due again when its time has passed."""
    statements.add_missing(session, ChoreRow, [{"name": name, "begun_at": _NEVER}], key=["name"])
    due = update(ChoreRow).where(ChoreRow.name == name, ChoreRow.begun_at <= now - every)
    return statements.changed(session, due.values(begun_at=now)) == 1
