"""Making, listing and revoking tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.api import callers
from tests.support.api.factories import Service


def test_a_token_is_made_used_and_revoked(client: TestClient) -> None:
    made = client.post(
        "/v1/tokens",
        json={
            "name": "CI of team one",
            "owner": "team-one",
            "scopes": ["submit", "read", "read"],
            "expires_in_seconds": 3600,
            "quota": {"running_jobs": 2, "stored_bytes": 10_000},
        },
    )
    assert made.status_code == 201
    token = made.json()
    assert token["token"].startswith("tsk_")
    assert token["scopes"] == ["read", "submit"]
    lifetime = datetime.fromisoformat(token["expires_at"]) - datetime.fromisoformat(token["created_at"])
    assert lifetime == timedelta(hours=1)
    headers = {"Authorization": f"Bearer {token['token']}"}
    own = client.get("/v1/tokens/self", headers=headers).json()
    assert (own["owner"], own["scopes"], own["token"]["id"]) == ("team-one", ["read", "submit"], token["id"])
    assert own["quota"] == {"running_jobs": 2, "queued_jobs": None, "stored_bytes": 10_000}
    assert own["usage"] == {"running_jobs": 0, "queued_jobs": 0, "stored_bytes": 0}
    revoked = client.delete(f"/v1/tokens/{token['id']}")
    assert (revoked.status_code, revoked.json()["active"]) == (200, False)
    assert client.get("/v1/tokens/self", headers=headers).status_code == 401
    assert client.delete(f"/v1/tokens/{token['id']}").json()["revoked_at"] == revoked.json()["revoked_at"]


def test_a_token_that_says_little_reads_and_submits_for_its_maker(client: TestClient) -> None:
    token = client.post("/v1/tokens", json={"name": "laptop"}).json()
    assert (token["owner"], token["scopes"], token["expires_at"]) == ("local", ["read", "submit"], None)
    assert set(token["quota"].values()) == {None}


def test_the_services_own_token_may_do_everything(client: TestClient, job: str) -> None:
    own = client.get("/v1/tokens/self").json()
    assert (own["owner"], own["scopes"], own["token"]) == ("local", ["admin", "read", "submit"], None)
    assert own["usage"] == {"running_jobs": 0, "queued_jobs": 1, "stored_bytes": len(b"dynamic model")}
    assert job


def test_tokens_are_listed_by_pages_and_owners(service: Service, client: TestClient) -> None:
    made = [callers.make(service, owner=owner)[0].id for owner in ("ann", "bob", "ann")]
    first = client.get("/v1/tokens?limit=2").json()
    second = client.get("/v1/tokens", params={"limit": 2, "page_token": first["next_page_token"]}).json()
    assert {token["id"] for token in first["tokens"] + second["tokens"]} == set(made)
    assert second["next_page_token"] is None
    assert [token["owner"] for token in client.get("/v1/tokens?owner=bob").json()["tokens"]] == ["bob"]
    assert client.get("/v1/tokens?page_token=x").json()["code"] == "invalid_page_token"


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "n" * 201},
        {"owner": "a b"},
        {"owner": "../etc"},
        {"owner": ""},
        {"scopes": []},
        {"scopes": ["root"]},
        {"expires_in_seconds": 0},
        {"expires_in_seconds": 60, "expires_at": "2100-01-01T00:00:00Z"},
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "9999-12-31T23:59:59-12:00"},
        {"expires_at": "2100-01-01T00:00:00"},
        {"quota": {"running_jobs": 0}},
        {"quota": {"stored_bytes": -1}},
        {"quota": {"stored_bytes": 2**60}},
        {"quota": {"jobs": 1}},
        {"scope": ["read"]},
    ],
)
def test_what_is_no_token(lasting: TestClient, changes: dict[str, Any]) -> None:
    answer = lasting.post("/v1/tokens", json={"name": "x", "owner": "ann"} | changes)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_a_token_that_is_not_there(client: TestClient) -> None:
    for method in ("GET", "DELETE"):
        answer = client.request(method, "/v1/tokens/t-none")
        assert (answer.status_code, answer.json()["code"]) == (404, "token_not_found")


def test_an_expiry_may_be_a_time(client: TestClient) -> None:
    at = (datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0)
    made = client.post("/v1/tokens", json={"name": "x", "expires_at": at.isoformat()}).json()
    assert datetime.fromisoformat(made["expires_at"]) == at
