"""Browsers: one-time links, sessions, and requests that other sites make them send."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlalchemy import update

from domain.tokens import Scope
from storage import tokens
from storage.browser_sessions import LINK_SECONDS
from storage.tables import TokenRow
from tests.support.api import callers
from tests.support.api.factories import AUTHORIZED, TOKEN, Service, open_service
from tests.support.api.live import serving

SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def browser(service: Service) -> Iterator[TestClient]:
    with TestClient(service.app, follow_redirects=False, raise_server_exceptions=False) as client:
        yield client


def log_in(browser: TestClient, headers: dict[str, str] = AUTHORIZED) -> None:
    link = browser.post("/v1/login-links", headers=headers).json()["url"]
    assert browser.get(link).status_code == 303


def whose(browser: TestClient) -> str | None:
    answer = browser.get("/v1/tokens/self")
    return answer.json()["owner"] if answer.status_code == 200 else None


def test_a_link_opens_a_session_once(browser: TestClient) -> None:
    made = browser.post("/v1/login-links", headers=AUTHORIZED)
    assert made.status_code == 201
    link = made.json()["url"]
    assert link.startswith("http://testserver/login?code=")
    left = datetime.fromisoformat(made.json()["expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=LINK_SECONDS - 60) < left <= timedelta(seconds=LINK_SECONDS)
    assert whose(browser) is None
    answer = browser.get(link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "strict", "/", "")
    assert whose(browser) == "local"
    browser.cookies.clear()
    again = browser.get(link)
    assert (again.status_code, again.json()["code"]) == (401, "unauthorized")
    assert whose(browser) is None


def test_a_page_of_another_site_signs_nobody_in(browser: TestClient) -> None:
    link = browser.post("/v1/login-links", headers=AUTHORIZED).json()["url"]
    answer = browser.get(link, headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
    assert whose(browser) is None
    action = answer.text.partition('action="')[2].partition('"')[0]
    for elsewhere in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {}):
        assert browser.post(action, headers=elsewhere).status_code == 403
    agreed = browser.post(action, headers=SAME)
    assert (agreed.status_code, agreed.headers["location"]) == (303, "/")
    assert whose(browser) == "local"


def test_a_link_in_a_page_is_shown_as_text(browser: TestClient) -> None:
    answer = browser.get('/login?code="><script>', headers={"Sec-Fetch-Site": "same-site"})
    assert "<script>" not in answer.text


def test_looking_at_a_link_does_not_use_it_up(browser: TestClient) -> None:
    link = browser.post("/v1/login-links", headers=AUTHORIZED).json()["url"]
    assert browser.head(link).status_code == 405
    assert browser.get(link).status_code == 303


def test_over_tls_the_cookie_stays_on_tls(service: Service) -> None:
    with TestClient(service.app, base_url="https://testserver", follow_redirects=False) as browser:
        link = browser.post("/v1/login-links", headers=AUTHORIZED).json()["url"]
        assert link.startswith("https://")
        assert "secure" in browser.get(link).headers["set-cookie"].lower()


@pytest.mark.parametrize("code", ["wrong", "x" * 200, "ü"])
def test_a_link_that_is_none(browser: TestClient, code: str) -> None:
    answer = browser.get(f"/login?code={code}")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("query", ["", "?code=", "?code=%00", f"?code={'x' * 201}"])
def test_a_link_without_a_code(browser: TestClient, query: str) -> None:
    answer = browser.get(f"/login{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_a_session_is_no_token_and_a_link_no_session(browser: TestClient) -> None:
    code = browser.post("/v1/login-links", headers=AUTHORIZED).json()["url"].partition("code=")[2]
    for text in (code, "anything"):
        assert browser.get("/v1/jobs", headers={"Cookie": f"tunesmith_session={text}"}).status_code == 401
    log_in(browser)
    secret = browser.cookies["tunesmith_session"]
    browser.cookies.clear()
    assert browser.get("/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


def test_the_password_of_a_proxy_leaves_the_session_alone(browser: TestClient) -> None:
    log_in(browser)
    assert browser.get("/v1/jobs", headers={"Authorization": "Basic YTpi"}).status_code == 200
    assert browser.get("/v1/jobs", headers={"Authorization": "Bearer tsk_wrong"}).status_code == 401


def test_a_session_may_do_what_its_token_may_and_ends_with_it(service: Service, browser: TestClient) -> None:
    token, headers = callers.make(service, owner="ann", scopes={Scope.READ})
    log_in(browser, headers)
    assert whose(browser) == "ann"
    refused = browser.post("/v1/jobs:plan", json={"model": "m"}, headers=SAME)
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    with service.database.transaction() as session:
        tokens.revoke(session, token.id, now=datetime.now(UTC))
    assert browser.get("/v1/jobs").json()["code"] == "unauthorized"


def test_a_session_of_a_token_that_expired_ends(service: Service, browser: TestClient) -> None:
    token, headers = callers.make(service, owner="ann", expires_at=datetime.now(UTC) + timedelta(hours=1))
    log_in(browser, headers)
    assert whose(browser) == "ann"
    with service.database.transaction() as session:
        just_now = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(TokenRow).where(TokenRow.id == token.id).values(expires_at=just_now))
    assert browser.get("/v1/jobs").json()["code"] == "token_expired"


def test_sessions_of_the_services_own_token_end_when_it_is_another_one(service: Service, browser: TestClient) -> None:
    log_in(browser)
    cookies = {"Cookie": f"tunesmith_session={browser.cookies['tunesmith_session']}"}
    for secret, status in ((TOKEN, 200), ("another", 401)):
        with open_service(service.home, token=SecretStr(secret)) as made, TestClient(made.app) as client:
            assert client.get("/v1/jobs", headers=cookies).status_code == status


def test_a_stream_of_events_ends_soon_after_its_session(
    service: Service, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.02)
    service.app.state.services.events._check_seconds = 0.05
    token, headers = callers.make(service)
    model = browser.put("/v1/models", content=b"static model", headers=headers).json()["id"]
    job = browser.post("/v1/jobs", json={"model": model}, headers=headers).json()["id"]
    log_in(browser, headers)
    secret = browser.cookies["tunesmith_session"]
    with serving(service) as url, httpx.Client(base_url=url, cookies={"tunesmith_session": secret}) as watcher:
        with watcher.stream("GET", f"/v1/jobs/{job}/events") as answer:
            pieces = answer.iter_raw()
            assert sum(piece.count(b": ping") for piece in islice(pieces, 10)) >= 8
            with service.database.transaction() as session:
                tokens.revoke(session, token.id, now=datetime.now(UTC))
            assert b"canceled" not in b"".join(pieces)
        assert watcher.get(f"/v1/jobs/{job}/events").status_code == 401


def test_logging_out_ends_the_session(browser: TestClient) -> None:
    log_in(browser)
    secret = browser.cookies["tunesmith_session"]
    answer = browser.post("/logout", headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "tunesmith_session" not in browser.cookies
    assert browser.get("/v1/jobs", headers={"Cookie": f"tunesmith_session={secret}"}).status_code == 401
    assert browser.post("/logout", headers=SAME).status_code == 303


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Origin": "http://testserver"}, True),
        ({"Origin": "https://testserver"}, True),
        ({"Origin": "http://testserver.evil.example"}, False),
        ({"Origin": "http://testserver:81"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_only_the_services_own_pages_change_something(
    browser: TestClient, headers: dict[str, str], allowed: bool
) -> None:
    log_in(browser)
    for method, path in (("PUT", "/v1/models"), ("POST", "/v1/login-links"), ("DELETE", "/v1/tokens/t-none")):
        answer = browser.request(method, path, content=b"dynamic model", headers=headers)
        assert (answer.status_code != 403) is allowed, path
        if not allowed:
            assert answer.json()["code"] == "forbidden"
    assert browser.get("/v1/jobs", headers=headers).status_code == 200
    assert browser.put("/v1/models", content=b"dynamic model", headers={**headers, **AUTHORIZED}).status_code < 300
    if not allowed:
        assert browser.post("/logout", headers=headers).status_code == 403
        assert whose(browser) == "local"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8000", True),
        ("192.168.1.4", True),
        ("[2001:db8::1]:8000", True),
        ("localhost:8000", True),
        ("tunebox", True),
        ("tunebox.local", True),
        ("evil.example:8000", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example.", False),
    ],
)
def test_where_everyone_is_let_in_other_sites_cannot_name_the_service(tmp_path: Path, host: str, allowed: bool) -> None:
    with open_service(tmp_path, open=True) as service, TestClient(service.app) as client:
        answer = client.get("/v1/jobs", headers={"Host": host})
        assert answer.status_code == (200 if allowed else 403)
        assert allowed or answer.json()["code"] == "forbidden"


def test_with_tokens_any_name_will_do(browser: TestClient) -> None:
    assert browser.get("/v1/jobs", headers={"Host": "tune.example", **AUTHORIZED}).status_code == 200


@pytest.mark.parametrize(("headers", "status"), [({}, 201), (SAME, 201), ({"Origin": "http://evil.example"}, 403)])
def test_other_sites_change_nothing_where_everyone_is_let_in(
    tmp_path: Path, headers: dict[str, Any], status: int
) -> None:
    with open_service(tmp_path, open=True) as service, TestClient(service.app) as client:
        assert client.put("/v1/models", content=b"dynamic model", headers=headers).status_code == status
        assert client.get("/v1/tokens/self").json()["owner"] == "local"
