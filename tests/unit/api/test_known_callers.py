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
from tests.support.api.factories import Service


def test_a_caller_is_known_for_a_second() -> None:
    now = [0.0]
    known = KnownCallers(clock=lambda: now[0])
    known.keep("secret", LOCAL, known.moment("secret"))
    now[0] = 0.9
    assert known.recall("secret") is LOCAL
    assert known.recall("another") is None
    now[0] = 1.0
    assert known.recall("secret") is None


def test_who_was_looked_up_before_all_were_forgotten_is_not_kept() -> None:
    known = KnownCallers(clock=lambda: 0.0)
    moment = known.moment("secret")
    known.forget()
    known.keep("secret", LOCAL, moment)
    assert known.recall("secret") is None


def test_one_whose_token_has_expired_is_looked_up() -> None:
    known, now = KnownCallers(clock=lambda: 0.0), datetime.now(UTC)
    for seconds, is_known in ((-1, False), (60, True)):
        caller = replace(LOCAL, expires_at=now + timedelta(seconds=seconds))
        known.keep("secret", caller, known.moment("secret"))
        assert (known.recall("secret") is caller) is is_known


def test_one_whose_row_stays_the_same_is_known_for_longer() -> None:
    now, row, asked = [0.0], ["as it was"], []

    def look_at_once(secret: str) -> tuple[str, ...]:
        asked.append(secret)
        return tuple(row)

    known = KnownCallers(look_at_once, clock=lambda: now[0])
    known.keep("secret", LOCAL, known.moment("secret"))
    for now[0] in (0.5, 1.5, 1.6, 3.0):
        assert known.recall("secret") is LOCAL
    # When it was kept, and then once for each second in which it was recalled.
    assert len(asked) == 3
    row[:] = ["revoked"]
    assert known.recall("secret") is LOCAL
    now[0] = 4.5
    assert known.recall("secret") is None


def test_nobody_is_known_so_long_that_a_use_is_not_written_down() -> None:
    now = [0.0]
    known = KnownCallers(lambda _: ("the same",), clock=lambda: now[0])
    known.keep("secret", LOCAL, known.moment("secret"))
    now[0] = 29.0
    assert known.recall("secret") is LOCAL
    now[0] = 30.0
    assert known.recall("secret") is None


def test_only_so_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_callers, "_MOST", 2)
    known = KnownCallers(clock=lambda: 0.0)
    for secret in "abc":
        known.keep(secret, LOCAL, known.moment(secret))
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
