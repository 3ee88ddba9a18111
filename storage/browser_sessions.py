"""Browser logins: one-time links and the sessions that they open.

Both are random texts stored as digests. Both act for the token that created the link, and end when it expires or is
revoked. The service's own token has no row to refer to; instead, the digests of its links and sessions include its
text, so they become invalid when it changes.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from storage import statements
from storage.tables import BrowserSessionRow, digest_of

LINK_SECONDS = 600
IDLE_SECONDS = 7 * 24 * 3600
_RENEW_SECONDS = 3600
_SECRET_BYTES = 32


def make_link(session: Session, *, token_id: str | None, own_token: str, now: datetime) -> tuple[str, datetime]:
    """Create a login link; returns its code and expiry. ``token_id`` None means the service's own token."""
    forget_expired(session, now=now)
    code, expires_at = secrets.token_urlsafe(_SECRET_BYTES), now + timedelta(seconds=LINK_SECONDS)
    digest = digest_of(code) if token_id else _own_digest(code, own_token)
    session.add(
        BrowserSessionRow(secret_digest=digest, is_link=True, token_id=token_id, created_at=now, expires_at=expires_at)
    )
    session.flush()
    return code, expires_at


def follow(session: Session, code: str, *, own_token: str, now: datetime) -> str | None:
    """Convert a link to a session and return its secret; None for an invalid or used link."""
    row = _find(session, code, own_token=own_token, is_link=True, now=now)
    if row is None:
        return None
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    won = statements.changed(
        session,
        update(BrowserSessionRow)
        .where(BrowserSessionRow.secret_digest == row.secret_digest, BrowserSessionRow.is_link)
        .values(
            secret_digest=digest_of(secret) if row.token_id else _own_digest(secret, own_token),
            is_link=False,
            created_at=now,
            expires_at=now + timedelta(seconds=IDLE_SECONDS),
        ),
    )
    return secret if won else None


def find(session: Session, secret: str, *, own_token: str, now: datetime) -> tuple[str | None, datetime] | None:
    """Return the id of the session's token, None for the service's own, and the expiry; None without a session."""
    row = _find(session, secret, own_token=own_token, is_link=False, now=now)
    return (row.token_id, row.expires_at) if row else None


def is_renewal_due(expires_at: datetime, now: datetime) -> bool:
    """Return whether the session should be renewed, which is not needed at every request."""
    return expires_at - now < timedelta(seconds=IDLE_SECONDS - _RENEW_SECONDS)


def renew(session: Session, secret: str, *, own_token: str, now: datetime) -> None:
    """Extend the session from now on."""
    found = update(BrowserSessionRow).where(_of(secret, own_token), BrowserSessionRow.is_link.is_(False))
    statements.changed(session, found.values(expires_at=now + timedelta(seconds=IDLE_SECONDS)))


def end(session: Session, secret: str, *, own_token: str) -> bool:
    found = delete(BrowserSessionRow).where(_of(secret, own_token), BrowserSessionRow.is_link.is_(False))
    return statements.changed(session, found) == 1


def forget_expired(session: Session, *, now: datetime) -> int:
    return statements.changed(session, delete(BrowserSessionRow).where(BrowserSessionRow.expires_at <= now))


def _find(session: Session, secret: str, *, own_token: str, is_link: bool, now: datetime) -> BrowserSessionRow | None:
    wanted = select(BrowserSessionRow).where(
        _of(secret, own_token), BrowserSessionRow.is_link.is_(is_link), BrowserSessionRow.expires_at > now
    )
    return session.scalar(wanted, execution_options={"populate_existing": True})


def _of(secret: str, own_token: str) -> ColumnElement[bool]:
    return or_(
        and_(BrowserSessionRow.secret_digest == digest_of(secret), BrowserSessionRow.token_id.is_not(None)),
        and_(BrowserSessionRow.secret_digest == _own_digest(secret, own_token), BrowserSessionRow.token_id.is_(None)),
    )


def _own_digest(secret: str, own_token: str) -> str:
    return digest_of(f"{secret} {own_token}")
