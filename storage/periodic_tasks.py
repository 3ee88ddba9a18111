"""What one of all workers does now and then: whoever takes a chore first does it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session

from storage import statements
from storage.tables import ChoreRow

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def take(session: Session, name: str, *, every: timedelta, now: datetime, at_once: bool = True) -> bool:
    """Whether the chore is due, and the caller's from now on. One that fails is due again when its time has passed.

    One that was never done is due at once, or, without ``at_once``, when its time has passed for the first time.
    """
    first = {"name": name, "begun_at": _NEVER if at_once else now}
    statements.add_missing(session, ChoreRow, [first], key=["name"])
    due = update(ChoreRow).where(ChoreRow.name == name, ChoreRow.begun_at <= now - every)
    return statements.changed(session, due.values(begun_at=now)) == 1
