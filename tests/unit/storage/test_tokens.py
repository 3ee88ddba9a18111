"""Tokens, and the links and sessions of browsers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from domain import errors
from domain.tokens import Quota, Scope, Token
from storage import browser_sessions, tokens
from storage.tables import BrowserSessionRow, TokenRow, digest_of
from tests.support.storage.factories import NOW

OWN = "the service's own"
MINUTE = timedelta(minutes=1)
IDLE = timedelta(days=7)


def made(session: Session, **options: object) -> tuple[Token, str]:
    given = {"name": "ci", "owner": "ann", "scopes": {Scope.READ}, "now": NOW} | options
    return tokens.create(session, **given)  # type: ignore[arg-type]


def test_a_token_is_found_by_its_text_which_is_not_stored(session: Session) -> None:
    token, text = made(session, quota=Quota(queued_jobs=3), expires_at=NOW + MINUTE)
    assert text.startswith(tokens.PREFIX)
    assert len(text) > 40
    assert tokens.find(session, text) == tokens.get(session, token.id) == token
    assert (token.scopes, token.quota.queued_jobs, token.expires_at) == ({Scope.READ}, 3, NOW + MINUTE)
    assert tokens.find(session, text + "x") is None
    row = session.scalars(select(TokenRow)).one()
    assert row.secret_digest == digest_of(text)
    assert not any(text in str(value) for value in vars(row).values())


def test_revoking_is_for_good_and_happens_once(session: Session) -> None:
    token, text = made(session)
    assert tokens.revoke(session, token.id, now=NOW).revoked_at == NOW
    assert tokens.revoke(session, token.id, now=NOW + MINUTE).revoked_at == NOW
    found = tokens.find(session, text)
    assert found is not None
    assert found.revoked_at == NOW
    with pytest.raises(errors.TokenNotFound):
        tokens.revoke(session, "t-none", now=NOW)


def test_uses_are_written_once_a_minute(session: Session) -> None:
    token, _ = made(session)
    for seconds, written in ((0, 0), (59, 0), (60, 60), (61, 60)):
        now = NOW + timedelta(seconds=seconds)
        tokens.used(session, token.id, now=now)
        found = tokens.get(session, token.id)
        assert found.last_used_at == NOW + timedelta(seconds=written)
        assert tokens.is_use_known(found, now)
    assert not tokens.is_use_known(found, NOW + timedelta(seconds=120))
    assert not tokens.is_use_known(token, NOW)


def test_a_link_works_once_and_for_ten_minutes(session: Session) -> None:
    token, _ = made(session)
    for token_id in (None, token.id):
        code, expires_at = browser_sessions.make_link(session, token_id=token_id, own_token=OWN, now=NOW)
        assert expires_at == NOW + 10 * MINUTE
        assert browser_sessions.follow(session, code, own_token=OWN, now=expires_at) is None
        late = expires_at - timedelta(seconds=1)
        secret = browser_sessions.follow(session, code, own_token=OWN, now=late)
        assert secret is not None
        assert browser_sessions.follow(session, code, own_token=OWN, now=late) is None
        assert browser_sessions.find(session, secret, own_token=OWN, now=late) == (token_id, late + IDLE)
        assert browser_sessions.find(session, code, own_token=OWN, now=late) is None


def test_a_session_ends_when_nobody_used_it_for_days(session: Session) -> None:
    secret = opened(session)
    later = NOW + timedelta(days=6)
    _, expires_at = found(session, secret, later)
    assert browser_sessions.is_renewal_due(expires_at, later)
    assert not browser_sessions.is_renewal_due(expires_at, NOW + timedelta(minutes=59))
    browser_sessions.renew(session, secret, own_token=OWN, now=later)
    assert found(session, secret, NOW + timedelta(days=12))
    assert browser_sessions.find(session, secret, own_token=OWN, now=later + IDLE) is None
    assert browser_sessions.forget_expired(session, now=later + IDLE) == 1


def test_only_the_own_tokens_sessions_know_its_text(session: Session) -> None:
    token, _ = made(session)
    own, other = opened(session), opened(session, token.id)
    assert browser_sessions.find(session, own, own_token="another", now=NOW) is None
    assert browser_sessions.find(session, other, own_token="another", now=NOW)
    assert not browser_sessions.end(session, own, own_token="another")
    assert browser_sessions.end(session, own, own_token=OWN)
    assert browser_sessions.find(session, own, own_token=OWN, now=NOW) is None


def test_no_secret_of_a_browser_is_stored(session: Session) -> None:
    code, _ = browser_sessions.make_link(session, token_id=None, own_token=OWN, now=NOW)
    secret = opened(session)
    stored = str([vars(row) for row in session.scalars(select(BrowserSessionRow))])
    assert code not in stored
    assert secret not in stored


def opened(session: Session, token_id: str | None = None) -> str:
    code, _ = browser_sessions.make_link(session, token_id=token_id, own_token=OWN, now=NOW)
    secret = browser_sessions.follow(session, code, own_token=OWN, now=NOW)
    assert secret is not None
    return secret


def found(session: Session, secret: str, now: object) -> tuple[object, object]:
    result = browser_sessions.find(session, secret, own_token=OWN, now=now)  # type: ignore[arg-type]
    assert result is not None
    return result
