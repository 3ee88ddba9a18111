"""Requests that may be sent again: the same Idempotency-Key gets the same answer, and nothing is done twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Header
from sqlalchemy.orm import Session

from domain.tokens import Principal
from storage import idempotency

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Repeating the request with the same key within seven days gets the same answer and does nothing "
        "twice. Keys are yours alone: another owner's are others.",
        examples=["build-1234-resnet50"],
    ),
]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One that carries a key."""

    key: str
    owner: str
    fingerprint: str

    @classmethod
    def of(cls, key: str | None, principal: Principal, *parts: object) -> Request | None:
        """``parts`` are all that the request says: the same key with others is an error. None without a key."""
        if key is None:
            return None
        text = "\n".join(repr(part) for part in parts)
        return cls(key=key, owner=principal.owner, fingerprint=hashlib.sha256(text.encode()).hexdigest())

    def answer(self, session: Session, *, now: datetime) -> str | None:
        """What was answered before. Raises IdempotencyMismatch."""
        return idempotency.recall(session, self.key, self.fingerprint, owner=self.owner, now=now)

    def remember(self, session: Session, answer: str, *, now: datetime) -> None:
        """Raises Conflict when another request with this key was answered meanwhile."""
        idempotency.remember(session, self.key, self.fingerprint, answer, owner=self.owner, now=now)


def once(session: Session, request: Request | None, make: Callable[[], str], *, now: datetime) -> tuple[str, bool]:
    """What ``make`` returns, or returned before, and whether it was called now."""
    known = request.answer(session, now=now) if request else None
    if known is not None:
        return known, False
    made = make()
    if request:
        request.remember(session, made, now=now)
    return made, True
