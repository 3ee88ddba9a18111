"""Access tokens. Their texts are returned once and never stored."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, bindparam, or_, select, update
from sqlalchemy.orm import Session

from domain import errors, ids
from domain.tokens import Quota, Scope, Token
from storage import codec, paging, statements
from storage.tables import TokenRow, digest_of

PREFIX = "tsk_"
"""Prefix by which people and secret scanners recognize tokens."""
_SECRET_BYTES = 32
_USE_SECONDS = 60
_BY_SECRET = select(TokenRow.__table__).where(TokenRow.__table__.c.secret_digest == bindparam("digest"))
"""Compiled once, as every request uses it."""


def create(
    session: Session,
    *,
    name: str,
    owner: str,
    scopes: Iterable[Scope],
    quota: Quota = Quota(),  # noqa: B008 - frozen
    expires_at: datetime | None = None,
    now: datetime,
) -> tuple[Token, str]:
    """Create a token; returns it and its text, which cannot be recovered."""
    text = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    row = TokenRow(
        id=ids.token(now),
        secret_digest=digest_of(text),
        name=name,
        owner=owner,
        scopes=sorted(scopes),
        quota=codec.dump(quota),
        created_at=now,
        expires_at=expires_at,
    )
    session.add(row)
    session.flush()
    return get(session, row.id), text


def find(session: Session, text: str) -> Token | None:
    """Return the token of this text, also an expired or revoked one."""
    row = session.connection().execute(_BY_SECRET, {"digest": digest_of(text)}).first()
    return _token(row) if row else None


def get(session: Session, token_id: str) -> Token:
    """Return a token. Raises TokenNotFound."""
    row = session.get(TokenRow, token_id, populate_existing=True)
    if row is None:
        raise errors.TokenNotFound(f"there is no token {token_id[:80]!r}")
    return _token(row)


def page(
    session: Session, *, owner: str | None = None, limit: int, page_token: str | None = None
) -> tuple[list[Token], str | None]:
    """Return a page of tokens, newest first, including expired and revoked ones. Raises InvalidPageToken."""
    query = select(TokenRow)
    if owner is not None:
        query = query.where(TokenRow.owner == owner)
    return paging.page(session, query, TokenRow, _token, limit=limit, page_token=page_token)


def revoke(session: Session, token_id: str, *, now: datetime) -> Token:
    """Revoke a token permanently; revoking it again has no effect. Raises TokenNotFound."""
    unrevoked = update(TokenRow).where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None))
    statements.changed(session, unrevoked.values(revoked_at=now))
    return get(session, token_id)


def is_use_known(token: Token, now: datetime) -> bool:
    """Return whether the last use was stored recently enough."""
    return token.last_used_at is not None and now - token.last_used_at < timedelta(seconds=_USE_SECONDS)


def used(session: Session, token_id: str, *, now: datetime) -> None:
    """Store the time of use, at most once a minute, also with concurrent requests."""
    stale = now - timedelta(seconds=_USE_SECONDS)
    unwritten = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at <= stale)
    statements.changed(session, update(TokenRow).where(TokenRow.id == token_id, unwritten).values(last_used_at=now))


def _token(row: TokenRow | Row[Any]) -> Token:
    return codec.from_row(Token, row)
