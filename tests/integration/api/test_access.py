"""Which token opens which route."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from domain.tokens import Scope
from storage import tokens
from tests.support.api import callers
from tests.support.api.factories import TOKEN, Service

OPEN = {("get", "/healthz"), ("get", "/readyz")}
ANY = {("get", "/v1/tokens/self"), ("post", "/v1/login-links")}
ADMIN = {
    ("post", "/v1/tokens"),
    ("get", "/v1/tokens"),
    ("get", "/v1/tokens/{token_id}"),
    ("delete", "/v1/tokens/{token_id}"),
}


def routes(client: TestClient) -> Iterator[tuple[str, str, list[str] | None]]:
    """Method, path and the scopes that the OpenAPI document says are needed; None where no token is."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            security = operation.get("security")
            yield method, path, security[0]["HTTPBearer"] if security else None


def expected(method: str, path: str) -> list[str] | None:
    if (method, path) in OPEN:
        return None
    if (method, path) in ANY:
        return []
    if (method, path) in ADMIN:
        return ["admin"]
    return ["read"] if method in ("get", "head") else ["submit"]


def test_every_route_says_which_scope_it_needs(client: TestClient) -> None:
    found = {(method, path): scopes for method, path, scopes in routes(client)}
    assert found == {route: expected(*route) for route in found}
    assert found.keys() >= OPEN | ANY | ADMIN


@pytest.mark.parametrize("missing", list(Scope))
def test_every_route_refuses_a_token_without_its_scope(service: Service, client: TestClient, missing: Scope) -> None:
    headers = callers.headers(service, scopes=set(Scope) - {missing})
    refused = []
    for method, path, scopes in routes(client):
        answer = client.request(method, re.sub(r"\{.*?\}", "x", path), headers=headers)
        if scopes == [missing.value]:
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (403, "missing_scope"), path
            assert problem["details"]["needed"] == missing
            refused.append(path)
        else:
            assert answer.status_code not in (401, 403), path
    assert refused


@pytest.mark.parametrize(
    ("sent", "code", "detail"),
    [
        ("tsk_nothing", "unauthorized", "not valid"),
        ("wrong", "unauthorized", "not valid"),
        ("", "unauthorized", "required"),
        (TOKEN + "x", "unauthorized", "not valid"),
        ("expired", "token_expired", "expired at 2026-01-01 00:01 UTC"),
        ("revoked", "unauthorized", "revoked"),
    ],
)
def test_tokens_that_open_nothing(service: Service, client: TestClient, sent: str, code: str, detail: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    if sent == "expired":
        headers = callers.headers(service, now=now, expires_at=now + timedelta(minutes=1))
    elif sent == "revoked":
        token, headers = callers.make(service)
        with service.database.transaction() as session:
            tokens.revoke(session, token.id, now=now)
    else:
        headers = {"Authorization": f"Bearer {sent}"}
    for path in ("/v1/jobs", "/v1/models", "/v1/tokens/self", "/v1/jobs/j-1/events"):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, code)
        assert detail in answer.json()["detail"]
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["hint"]


def test_no_text_of_a_token_is_kept_or_told(
    service: Service, client: TestClient, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("DEBUG")
    made = client.post("/v1/tokens", json={"name": "ci", "owner": "ann"}).json()
    secret = made["token"]
    link = client.post("/v1/login-links", headers={"Authorization": f"Bearer {secret}"}).json()["url"]
    code = link.partition("code=")[2]
    with TestClient(service.app, follow_redirects=False) as browser:
        browser.get(link)
        cookie = browser.cookies["tunesmith_session"]
    answers = [
        client.get("/v1/tokens").text,
        client.get(f"/v1/jobs?text={secret}").text,
        client.get(f"/v1/tokens/{made['id']}").text,
        client.get("/v1/tokens/self", headers={"Authorization": f"Bearer {secret}"}).text,
        client.get("/v1/models", headers={"Authorization": f"Bearer {secret}x"}).text,
        client.get("/v1/nothing", headers={"Authorization": f"Bearer {secret}"}).text,
        client.delete(f"/v1/tokens/{made['id']}").text,
        client.get("/v1/models", headers={"Authorization": f"Bearer {secret}"}).text,
    ]
    service.database.close()
    # What the test's own client logs is none of the service's.
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("db.sqlite3*"))
    assert made["id"].encode() in stored
    for hidden in (secret, code, cookie, TOKEN):
        assert hidden.encode() not in stored
        assert not any(hidden in text for text in [*logged, *answers])
