"""Periodic tasks of the service: the first worker that claims a due one runs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session

from storage import statements
from storage.tables import PeriodicTaskRow

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def take(session: Session, name: str, *, every: timedelta, now: datetime, at_once: bool = True) -> bool:
    """Claim the task if it is due, and return whether the caller now has to run it. If it fails, it is due again after
    ``every``.

    A task that never ran is due at once, or, without ``at_once``, after ``every``.
    """
    first = {"name": name, "begun_at": _NEVER if at_once else now}
    statements.add_missing(session, PeriodicTaskRow, [first], key=["name"])
    due = update(PeriodicTaskRow).where(PeriodicTaskRow.name == name, PeriodicTaskRow.begun_at <= now - every)
    return statements.changed(session, due.values(begun_at=now)) == 1
