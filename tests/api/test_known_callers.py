"""Whom tokens stand for, remembered for a moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from api.transport import known_callers
from api.transport.credentials import LOCAL
from api.transport.known_callers import KnownCallers
from tests.api.factories import Service


def test_a_caller_is_known_for_a_second() -> None:
    now = [0.0]
    known = KnownCallers(clock=lambda: now[0])
    known.keep("secret", LOCAL, known.moment)
    now[0] = 0.9
    assert known.recall("secret") is LOCAL
    assert known.recall("another") is None
    now[0] = 1.0
    assert known.recall("secret") is None


def test_who_was_looked_up_before_all_were_forgotten_is_not_kept() -> None:
    known = KnownCallers(clock=lambda: 0.0)
    moment = known.moment
    known.forget()
    known.keep("secret", LOCAL, moment)
    assert known.recall("secret") is None


def test_one_whose_token_has_expired_is_looked_up() -> None:
    known, now = KnownCallers(clock=lambda: 0.0), datetime.now(UTC)
    for seconds, is_known in ((-1, False), (60, True)):
        caller = replace(LOCAL, expires_at=now + timedelta(seconds=seconds))
        known.keep("secret", caller, known.moment)
        assert (known.recall("secret") is caller) is is_known


def test_only_so_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_callers, "_MOST", 2)
    known = KnownCallers(clock=lambda: 0.0)
    for secret in "abc":
        known.keep(secret, LOCAL, known.moment)
    assert [known.recall(secret) for secret in "abc"] == [None, LOCAL, LOCAL]


def test_a_token_is_looked_up_once_a_second_and_forgotten_when_it_is_revoked(
    client: TestClient, service: Service
) -> None:
    made = client.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}).json()
    theirs = {"Authorization": f"Bearer {made['token']}"}
    asked: list[str] = []

    @event.listens_for(service.database._reader, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "tokens.secret_digest =" in statement:
            asked.append(statement)

    for _ in range(3):
        assert client.get("/v1/jobs", headers=theirs).status_code == 200
    assert len(asked) == 1
    assert client.delete(f"/v1/tokens/{made['id']}").status_code in (200, 204)
    assert client.get("/v1/jobs", headers=theirs).status_code == 401
