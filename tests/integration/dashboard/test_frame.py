"""What every page has: headers, assets, navigation, errors."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import api
from api.dashboard import assets
from tests.support.api.factories import AUTHORIZED, Service

_VENDOR = Path(assets.__file__).parent / "static" / "vendor"
_API = Path(api.__file__).parent
_HTML = {"Accept": "text/html"}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/", ("No jobs yet", "tunesmith tune model.onnx", 'href="/new"')),
        ("/new", ("None yet", 'id="upload"', "There is no live worker", 'aria-current="page">New job')),
        ("/models", ("No models yet", "tunesmith upload", 'href="/new"')),
        ("/data", ("No data sets yet", "tunesmith data add")),
        ("/compare", ("Nothing to compare yet",)),
        ("/records", ("No records yet", "tunesmith records import")),
        ("/fleet", ("No workers yet", "tunesmith worker", "No device is in quarantine")),
    ],
)
def test_an_empty_service_says_what_to_do(client: TestClient, path: str, told: tuple[str, ...]) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert [words for words in told if words not in page.text] == []


def test_vendored_files_are_the_ones_described() -> None:
    described = tomllib.loads((_VENDOR / "vendored.toml").read_text())
    files = {name: entry["sha256"] for part in described.values() for name, entry in part["files"].items()}
    licences = {part["licence_file"] for part in described.values()}
    present = {path.relative_to(_VENDOR).as_posix() for path in _VENDOR.rglob("*") if path.is_file()}
    assert present == {*files, *licences, "vendored.toml"}
    for name, digest in files.items():
        assert hashlib.sha256((_VENDOR / name).read_bytes()).hexdigest() == digest, name


def test_pages_run_only_their_own_scripts_and_styles(client: TestClient) -> None:
    page = client.get("/")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "same-origin"
    assert not re.search(r"<style|\sstyle=|<script>|\son[a-z]+=", page.text)
    assert '"allowEval": false' in page.text


@pytest.mark.parametrize("template", sorted(_API.rglob("*.html")), ids=lambda path: path.stem)
def test_templates_have_nothing_that_the_policy_forbids(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<style|\sstyle=|<script>|\son[a-z]+=|hx-on|hx-vars|js:|javascript:", text)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    assert not re.search(r"\{\{[^'}]*\|\s*safe", text)


def test_assets_are_kept_for_as_long_as_their_address_lives(client: TestClient) -> None:
    addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get("/").text))
    assert len(addresses) >= 5
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
    script = next(address for address in addresses if address.endswith("htmx.min.js"))
    assert client.get(script).headers["content-encoding"] == "gzip"
    assert client.get(script, headers={"Accept-Encoding": ""}).text == client.get(script).text
    other = re.sub("/static/[^/]+/", "/static/old/", script)
    assert client.get(other).headers["cache-control"] == "no-cache"


def test_assets_stay_in_their_folder(client: TestClient) -> None:
    version = re.findall(r"/static/([^/]+)/", client.get("/").text)[0]
    for path in ("..%2frendering.py", "%2e%2e/rendering.py", "css", "css/none.css", "/etc/passwd"):
        assert client.get(f"/static/{version}/{path}").status_code == 404, path


def test_navigation_says_where_one_is(client: TestClient) -> None:
    links = re.findall(r'<li><a href="([^"]+)"( aria-current="page")?>', client.get("/").text)
    assert [address for address, _ in links] == ["/", "/new", "/models", "/data", "/compare", "/records", "/fleet"]
    assert [address for address, current in links if current] == ["/"]


def test_browsers_are_told_of_errors_in_pages(client: TestClient) -> None:
    page = client.get("/nowhere/<b>")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<code>route_not_found</code>" in page.text
    assert "<b>" not in page.text
    assert client.get("/?page_token=wrong").status_code == 400


def test_programs_are_told_of_errors_in_problem_documents(client: TestClient) -> None:
    assert client.get("/v1/jobs/none").headers["content-type"] == "application/problem+json"
    other = client.get("/nowhere", headers={"Accept": "application/json"})
    assert other.headers["content-type"] == "application/problem+json"


def test_a_browser_without_a_session_is_told_how_to_sign_in(service: Service) -> None:
    page = TestClient(service.app).get("/", headers=_HTML)
    assert page.status_code == 401
    assert "not signed in" in page.text
    assert "tunesmith login" in page.text
    assert "bearer" not in page.text.lower()
    assert "content-security-policy" in page.headers


def test_a_login_link_opens_the_dashboard_once(service: Service) -> None:
    made = TestClient(service.app, headers=AUTHORIZED).post("/v1/login-links").json()["url"]
    browser = TestClient(service.app, headers=_HTML)
    assert "Signed in as local" in browser.get(made).text
    assert "Signed in as local" in browser.get("/").text
    again = TestClient(service.app, headers=_HTML).get(made)
    assert (again.status_code, "not signed in" in again.text) == (401, True)
    assert "The login link was already used" in again.text
    assert browser.post("/logout", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 401
    assert "not signed in" in browser.get("/").text


def test_a_dead_login_link_says_that_one_is_signed_in_already(service: Service) -> None:
    made = TestClient(service.app, headers=AUTHORIZED).post("/v1/login-links").json()["url"]
    browser = TestClient(service.app, headers=_HTML)
    browser.get(made)
    for dead in (made, "/login?code=xx"):
        page = browser.get(dead)
        assert (page.status_code, "not signed in" in page.text) == (401, False)
        assert "The login link was already used, or is older than ten minutes." in page.text
        assert "already signed in as local" in page.text
        assert '<a class="button" href="/">Go to the jobs</a>' in page.text


def test_a_service_token_needs_no_signing_out(client: TestClient) -> None:
    assert "Sign out" not in client.get("/").text


def test_unexpected_errors_tell_nothing_of_the_inside(service: Service, client: TestClient) -> None:
    service.database.close()
    service.app.state.services = None
    page = client.get("/")
    assert page.status_code == 500
    assert "internal_error" in page.text
    assert "NoneType" not in page.text
    assert "content-security-policy" in page.headers
