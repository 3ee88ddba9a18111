"""Every code that the API can refuse with is provoked once, and a new code without a request here is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api import problems
from domain import errors
from tests.support.api.factories import Service
from tests.support.api.refusals import NEVER_BY_HTTP, REFUSALS, World

_COME_AGAIN = {code for code in REFUSALS if code.startswith(("blob_store_", "database_"))} | {
    "rate_limited",
    "planner_busy",
}
_INSIDE = 500
"""The status of what failed inside: of jobs and engines, never of a request's own doing."""


@pytest.fixture
def world(client: TestClient, service: Service, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(client=client, service=service, model=model, home=tmp_path, monkeypatch=monkeypatch)


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_says_what_is_wrong(world: World, code: str) -> None:
    status, ask = REFUSALS[code]
    answer = ask(world)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert answer.headers["content-type"] == problems.MEDIA_TYPE
    assert answer.headers["cache-control"] == "no-store"
    assert problem["status"] == status
    assert problem["type"] == f"urn:tunesmith:problem:{code}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["hint"]
    assert ("retry-after" in answer.headers) == (code in _COME_AGAIN)
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_every_code_is_provoked_or_told_why_it_cannot_be() -> None:
    reachable = {kind.code for kind in errors.every() if kind.status != _INSIDE} | {errors.TunesmithError.code}
    assert REFUSALS.keys() | NEVER_BY_HTTP.keys() == reachable
    assert not REFUSALS.keys() & NEVER_BY_HTTP.keys()
