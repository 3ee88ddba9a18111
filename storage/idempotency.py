"""Requests that may be sent again: the same Idempotency-Key gets the same answer, and nothing is done twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from domain import errors
from storage import statements
from storage.tables import IdempotencyKeyRow, digest_of

KEPT = timedelta(days=7)
"""How long an answer is remembered."""


@dataclass(frozen=True, kw_only=True)
class IdempotentRequest:
    """A request that carries a key."""

    key_digest: str
    fingerprint: str
    """Digest of all that the request says."""

    @classmethod
    def of(cls, key: str | None, owner: str, *parts: object) -> IdempotentRequest | None:
        """``parts`` are all that the request says: the same key with others is an error. None without a key.

        Keys are the owner's alone. No owner has a space in its name, so no two of them share a digest.
        """
        if key is None:
            return None
        text = "\n".join(repr(part) for part in parts)
        return cls(key_digest=digest_of(f"{owner} {key}"), fingerprint=hashlib.sha256(text.encode()).hexdigest())

    def recall(self, session: Session, *, now: datetime) -> str | None:
        """What was answered before. Raises IdempotencyMismatch when the key came with another request.

        Call it in the transaction that will ``remember``, or before the work where that is done in many.
        """
        row = session.get(IdempotencyKeyRow, self.key_digest, populate_existing=True)
        if row is None:
            return None
        if row.created_at < now - KEPT:
            session.delete(row)
            session.flush()
            return None
        if row.fingerprint != self.fingerprint:
            raise errors.IdempotencyMismatch("this Idempotency-Key was used for a different request")
        return row.answer

    def remember(self, session: Session, answer: str, *, now: datetime) -> None:
        """``answer`` is the id of what the request made, or the whole answer.

        Raises Conflict when another request with this key was answered meanwhile; the caller's transaction must not
        commit.
        """
        row = {
            "key_digest": self.key_digest,
            "fingerprint": self.fingerprint,
            "answer": answer,
            "created_at": now,
        }
        if not statements.add_missing(session, IdempotencyKeyRow, [row], key=["key_digest"]):
            raise errors.Conflict(
                "a request with this Idempotency-Key is in progress",
                hint="Send the same request again to get its response.",
            )


def once(
    session: Session, request: IdempotentRequest | None, make: Callable[[], str], *, now: datetime
) -> tuple[str, bool]:
    """What ``make`` returns, or returned before, and whether it was called now."""
    known = request.recall(session, now=now) if request else None
    if known is not None:
        return known, False
    made = make()
    if request:
        request.remember(session, made, now=now)
    return made, True


def forget(session: Session, *, made_before: datetime) -> int:
    return statements.changed(session, delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < made_before))
