"""What HTTP promises of any resource: HEAD, entity tags, caching, allowed methods."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from tests.support.api.factories import Service
from tests.support.api.scripted import ScriptedWorker


@pytest.fixture
def resources(client: TestClient, service: Service, job: str, model: str) -> dict[str, str]:
    """Path of each kind of resource, by name."""
    ScriptedWorker(service).run(job)
    artifact = client.get(f"/v1/jobs/{job}").json()["artifact_id"]
    return {
        "models": "/v1/models",
        "model": f"/v1/models/{model}",
        "jobs": "/v1/jobs",
        "job": f"/v1/jobs/{job}",
        "report": f"/v1/jobs/{job}/report",
        "artifacts": "/v1/artifacts",
        "artifact": f"/v1/artifacts/{artifact}",
        "best": f"/v1/best?model={model}",
        "records": "/v1/records",
        "download": f"/v1/artifacts/{artifact}/download",
    }


def test_what_has_not_changed_is_not_sent_again(client: TestClient, resources: dict[str, str]) -> None:
    for kind, path in resources.items():
        first = client.get(path)
        etag = first.headers["etag"]
        assert re.fullmatch(r'"[0-9a-f]{32,64}"', etag), f"the tag of {kind} is not strong"
        assert first.headers["cache-control"].startswith("private, ")
        assert first.headers["vary"].removeprefix("Accept-Encoding, ") == "Authorization, Cookie"
        for given in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            again = client.get(path, headers={"If-None-Match": given})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag), kind
            assert "content-length" not in again.headers
        other = client.get(path, headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.content) == (200, first.content), kind


def test_what_has_changed_has_another_tag(client: TestClient, job: str) -> None:
    etag = client.get("/v1/jobs").headers["etag"]
    client.post(f"/v1/jobs/{job}:cancel")
    assert client.get("/v1/jobs", headers={"If-None-Match": etag}).status_code == 200


def test_head_has_the_headers_of_get_and_no_body(client: TestClient, resources: dict[str, str]) -> None:
    for kind, path in resources.items():
        whole, head = (ask(path, headers={"X-Request-ID": "x"}) for ask in (client.get, client.head))
        assert (head.status_code, head.content) == (200, b""), kind
        assert head.headers == whole.headers, kind
        assert client.head(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304


def test_head_of_a_stream_ends_at_once(client: TestClient, job: str) -> None:
    answer = client.head(f"/v1/jobs/{job}/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    native = client.head("/v1/records?tuner=autotvm&format=native")
    assert (native.status_code, native.content) == (200, b"")


def test_head_of_what_is_not_there(client: TestClient) -> None:
    for path, status in (("/v1/models/m-none", 404), ("/nothing", 404), ("/v1/jobs:plan", 405)):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (status, b"")


def test_a_bundle_is_kept_for_ever_by_whoever_may_have_it(client: TestClient, resources: dict[str, str]) -> None:
    whole = client.get(resources["download"])
    assert whole.headers["cache-control"] == "private, max-age=31536000, immutable"
    same = client.get(resources["download"], headers={"If-None-Match": whole.headers["etag"]})
    assert same.headers["cache-control"] == whole.headers["cache-control"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda client, job: client.get(f"/v1/jobs/{job}/log"),
        lambda client, job: client.post(f"/v1/jobs/{job}:cancel"),
        lambda client, job: client.get("/metrics"),
    ],
    ids=["log", "post", "metrics"],
)
def test_nothing_else_is_kept(client: TestClient, job: str, ask: Callable[..., object]) -> None:
    answer = ask(client, job)
    assert answer.headers["cache-control"] == "no-store"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/jobs", "GET, HEAD, POST"),
        ("/v1/models", "GET, HEAD, PUT"),
        ("/v1/jobs/j-1", "GET, HEAD"),
        ("/v1/jobs/j-1:cancel", "GET, HEAD, POST"),
        ("/v1/jobs:plan", "POST"),
    ],
)
def test_other_methods_are_refused_with_those_that_work(lasting: TestClient, path: str, allowed: str) -> None:
    for method in ("PATCH", "DELETE", "OPTIONS", "BREW"):
        answer = lasting.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allowed
