"""Jobs that belong together."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.jobs import groups
from tests.support.api import callers
from tests.support.api.factories import SHAPES, Service
from tests.support.api.scripted import ScriptedWorker


def make(client: TestClient, model: str, group: str | None, **options: Any) -> str:
    answer = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, "group": group}, **options)
    assert answer.status_code == 202, answer.text
    assert answer.json()["group"] == group
    return str(answer.json()["id"])


def states(client: TestClient, *job_ids: str) -> list[str]:
    return [client.get(f"/v1/jobs/{job_id}").json()["state"] for job_id in job_ids]


def test_groups_are_counted_by_state(client: TestClient, service: Service, model: str) -> None:
    assert client.get("/v1/groups").json() == {"groups": [], "next_page_token": None}
    make(client, model, None)
    done, waiting = make(client, model, "nightly"), make(client, model, "nightly")
    other = make(client, model, "a.b_c-1")
    newest = make(client, model, "nightly")
    ScriptedWorker(service).run(done)
    client.post(f"/v1/jobs/{newest}:cancel")
    first, second = client.get("/v1/groups").json()["groups"]
    assert first.pop("newest_at") == client.get(f"/v1/jobs/{newest}").json()["created_at"]
    assert first == {
        "name": "nightly",
        "owner": "local",
        "jobs": 3,
        "counts": {"succeeded": 1, "queued": 1, "canceled": 1},
        "newest_job": newest,
    }
    assert (second["name"], second["jobs"], second["newest_job"]) == ("a.b_c-1", 1, other)
    listed = client.get("/v1/jobs", params={"group": "nightly"}).json()["jobs"]
    assert [job["id"] for job in listed] == [newest, waiting, done]
    assert client.get("/v1/jobs", params={"group": "night"}).json()["jobs"] == []


def test_a_group_is_canceled_as_a_whole(client: TestClient, service: Service, model: str) -> None:
    done, running, queued = (make(client, model, "nightly") for _ in range(3))
    bystander, lone = make(client, model, "other"), make(client, model, None)
    worker = ScriptedWorker(service)
    worker.run(done)
    worker.claim(running)
    answer = client.post("/v1/groups/nightly:cancel")
    assert answer.status_code == 202
    assert answer.json()["counts"] == {"succeeded": 1, "canceling": 1, "canceled": 1}
    assert states(client, done, running, queued) == ["succeeded", "canceling", "canceled"]
    assert states(client, bystander, lone) == ["queued", "queued"]
    again = client.post("/v1/groups/nightly:cancel")
    assert (again.status_code, again.json()["counts"]) == (202, answer.json()["counts"])


def test_a_large_group_is_canceled_in_several_steps(
    client: TestClient, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_AT_ONCE", 2)
    for _ in range(5):
        make(client, model, "many")
    assert client.post("/v1/groups/many:cancel").json()["counts"] == {"canceled": 5}


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("none", 404, "group_not_found"),
        ("a b", 400, "invalid_request"),
        ("%00", 400, "invalid_request"),
        ("<b>", 400, "invalid_request"),
        ("a" * 101, 400, "invalid_request"),
        ("..%2Fx", 404, "route_not_found"),
    ],
)
def test_an_unknown_group_is_not_canceled(lasting: TestClient, name: str, status: int, code: str) -> None:
    answer = lasting.post(f"/v1/groups/{name}:cancel")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "../a", ".a", "-a", "a\n", "é", "<b>", "a:cancel", "a" * 101, 5]
)
def test_a_name_that_fits_into_no_path_is_refused(lasting: TestClient, lasting_model: str, name: Any) -> None:
    answer = lasting.post("/v1/jobs", json={"model": lasting_model, "input_shapes": SHAPES, "group": name})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_a_group_is_its_owners(client: TestClient, service: Service) -> None:
    ann, bob = ({"headers": callers.headers(service, owner=owner)} for owner in ("ann", "bob"))
    jobs = {}
    for owner, who in (("ann", ann), ("bob", bob)):
        model = client.put("/v1/models", content=f"dynamic model of {owner}".encode(), **who).json()["id"]
        jobs[owner] = make(client, model, "nightly", **who)
    seen = client.get("/v1/groups", **ann).json()["groups"]
    assert [(group["name"], group["owner"], group["newest_job"]) for group in seen] == [("nightly", "ann", jobs["ann"])]
    everyone = client.get("/v1/groups").json()["groups"]
    assert [group["owner"] for group in everyone] == ["bob", "ann"]
    assert [group["owner"] for group in client.get("/v1/groups?owner=ann").json()["groups"]] == ["ann"]
    assert client.get("/v1/groups?owner=bob", **ann).json()["code"] == "missing_scope"
    assert client.post("/v1/groups/nightly:cancel?owner=bob", **ann).json()["code"] == "missing_scope"
    assert client.post("/v1/groups/nightly:cancel").json()["code"] == "group_not_found", "an admin's own first"
    assert client.post("/v1/groups/nightly:cancel", **ann).json()["counts"] == {"canceled": 1}
    assert states(client, jobs["ann"], jobs["bob"]) == ["canceled", "queued"]
    assert client.post("/v1/groups/nightly:cancel?owner=bob").json()["owner"] == "bob"
    assert states(client, jobs["bob"]) == ["canceled"]


def test_a_job_like_another_stays_in_its_group(client: TestClient, model: str) -> None:
    old = make(client, model, "nightly")
    assert client.post("/v1/jobs", json={"like": old}).json()["group"] == "nightly"
    assert client.post("/v1/jobs", json={"like": old, "group": None}).json()["group"] is None
    client.post(f"/v1/jobs/{old}:cancel")
    assert client.post(f"/v1/jobs/{old}:retry").json()["group"] == "nightly"
