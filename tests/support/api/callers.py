"""Tokens to call with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from domain.tokens import Scope, Token
from storage import tokens
from tests.support.api.factories import Service

USUAL = frozenset({Scope.READ, Scope.SUBMIT})


def make(service: Service, *, owner: str = "ann", scopes: Any = USUAL, **options: Any) -> tuple[Token, dict[str, str]]:
    """The token, and the headers that send it."""
    with service.database.transaction() as session:
        now = options.pop("now", datetime.now(UTC))
        token, text = tokens.create(session, name="test", owner=owner, scopes=scopes, now=now, **options)
    return token, {"Authorization": f"Bearer {text}"}


def headers(service: Service, **options: Any) -> dict[str, str]:
    return make(service, **options)[1]
