"""Requests that were answered before: a repeated one gets the same answer instead of a second job."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from domain import errors
from domain.tokens import LOCAL_OWNER
from storage import statements
from storage.tables import IdempotencyKeyRow, digest_of

KEPT = timedelta(days=7)
"""How long an answer is remembered."""


def recall(session: Session, key: str, fingerprint: str, *, owner: str = LOCAL_OWNER, now: datetime) -> str | None:
    """The answer remembered for this owner's ``key``. Raises IdempotencyMismatch when it was for another request.

    Call it in the transaction that will ``remember``.
    """
    row = session.get(IdempotencyKeyRow, _digest(key, owner), populate_existing=True)
    if row is None:
        return None
    if row.created_at < now - KEPT:
        session.delete(row)
        session.flush()
        return None
    if row.fingerprint != fingerprint:
        raise errors.IdempotencyMismatch("this Idempotency-Key was used for a different request")
    return row.answer


def remember(
    session: Session, key: str, fingerprint: str, answer: str, *, owner: str = LOCAL_OWNER, now: datetime
) -> None:
    """``fingerprint`` is any digest of the request, ``answer`` the id of what it made.

    Raises Conflict when another request with this key was answered meanwhile; the caller's transaction must not commit.
    """
    row = {"key_digest": _digest(key, owner), "fingerprint": fingerprint, "answer": answer, "created_at": now}
    if not statements.add_missing(session, IdempotencyKeyRow, [row], key=["key_digest"]):
        raise errors.Conflict("this Idempotency-Key is in use", hint="Send the same request again for its answer.")


def forget(session: Session, *, made_before: datetime) -> int:
    return statements.changed(session, delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < made_before))


def _digest(key: str, owner: str) -> str:
    """No owner has a space in its name, so no two of them share a digest."""
    return digest_of(f"{owner} {key}")
