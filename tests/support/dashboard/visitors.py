"""Browsers of others than the service's own token."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from fastapi.testclient import TestClient

from domain.tokens import Quota, Scope
from storage import tokens
from tests.support.api.factories import Service

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def visitor(
    service: Service,
    owner: str,
    scopes: Iterable[Scope] = (Scope.READ, Scope.SUBMIT),
    quota: Quota = Quota(),  # noqa: B008 - frozen
) -> TestClient:
    with service.database.transaction() as session:
        _, text = tokens.create(session, name=owner, owner=owner, scopes=scopes, quota=quota, now=datetime.now(UTC))
    return TestClient(service.app, headers={**BROWSER, "Authorization": f"Bearer {text}"})
