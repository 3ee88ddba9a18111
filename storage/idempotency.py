"""Idempotent requests: a repeated Idempotency-Key gets the same response without repeating the action."""

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
"""How long a response is stored."""


@dataclass(frozen=True, kw_only=True)
class IdempotentRequest:
    """A request with an idempotency key."""

    key_digest: str
    fingerprint: str
    """Digest of the whole content of the request."""

    @classmethod
    def of(cls, key: str | None, owner: str, *parts: object) -> IdempotentRequest | None:
        """Create it from ``parts``, the whole content of the request; None without a key.

        Keys are separate for each owner. Owner names contain no space, so different owners cannot have the same digest.
        """
        if key is None:
            return None
        text = "\n".join(repr(part) for part in parts)
        return cls(key_digest=digest_of(f"{owner} {key}"), fingerprint=hashlib.sha256(text.encode()).hexdigest())

    def recall(self, session: Session, *, now: datetime) -> str | None:
        """Return the stored response, or None. Raises IdempotencyMismatch if the key was used for another request.

        Call it in the transaction of ``remember``, or before work that spans several transactions.
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
        """Store ``answer``: the id of what the request created, or the whole response.

        Raises Conflict if a concurrent request with this key was completed; the caller's transaction must not commit.
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
    """Return the result of ``make``, or the stored one, and whether it was called now."""
    known = request.recall(session, now=now) if request else None
    if known is not None:
        return known, False
    made = make()
    if request:
        request.remember(session, made, now=now)
    return made, True


def forget(session: Session, *, made_before: datetime) -> int:
    return statements.changed(session, delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < made_before))
