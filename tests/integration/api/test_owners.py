"""What belongs to somebody else does not exist, except for admins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from domain.jobs import JobState
from domain.tokens import Scope
from storage import jobs, workers
from tests.support.api import callers
from tests.support.api.factories import AUTHORIZED, SHAPES, Service
from tests.support.api.scripted import ScriptedWorker


@dataclass(frozen=True)
class World:
    """Ann has a model, a job that ended with an artifact, and one that waits; Bob has nothing."""

    client: TestClient
    service: Service
    ann: dict[str, str]
    bob: dict[str, str]
    model: str
    digest: str
    done: str
    waiting: str
    artifact: str


@pytest.fixture
def world(service: Service) -> Iterator[World]:
    ann, bob = callers.headers(service, owner="ann"), callers.headers(service, owner="bob")
    with TestClient(service.app) as client:
        model = client.put("/v1/models?name=secret", content=b"dynamic model", headers=ann).json()
        made = [
            client.post("/v1/jobs", json={"model": model["id"], "input_shapes": SHAPES}, headers=ann).json()["id"]
            for _ in range(2)
        ]
        worker = ScriptedWorker(service)
        worker.run(made[0])
        worker.beat(current_job=made[1])
        artifact = client.get(f"/v1/jobs/{made[0]}", headers=ann).json()["artifact_id"]
        yield World(client, service, ann, bob, model["id"], model["digest"], made[0], made[1], artifact)


def test_the_owner_sees_what_is_hers(world: World) -> None:
    for path in paths(world):
        assert world.client.get(path, headers=world.ann).status_code in (200, 409), path
    assert world.client.get(f"/v1/jobs/{world.done}", headers=world.ann).json()["owner"] == "ann"


def test_to_others_it_does_not_exist(world: World) -> None:
    for path, code in paths(world).items():
        answer = world.client.get(path, headers=world.bob)
        assert (answer.status_code, answer.json()["code"]) == (404, code), path
    missing = world.client.get("/v1/jobs/j-none", headers=world.bob).json()
    hidden = world.client.get(f"/v1/jobs/{world.done}", headers=world.bob).json()
    assert hidden["detail"].replace(world.done, "j-none") == missing["detail"]


def paths(world: World) -> dict[str, str]:
    """What can be read of Ann's, and the code that others get."""
    return {
        **{f"/v1/jobs/{world.done}{rest}": "job_not_found" for rest in ("", "/log", "/profile", "/records", "/report")},
        f"/v1/jobs/{world.done}/events": "job_not_found",
        f"/v1/jobs/{world.waiting}": "job_not_found",
        f"/v1/records?job={world.done}": "job_not_found",
        f"/v1/models/{world.model}": "model_not_found",
        f"/v1/models/{world.digest}": "model_not_found",
        f"/v1/jobs?model={world.model}": "model_not_found",
        f"/v1/artifacts?model={world.model}": "model_not_found",
        f"/v1/best?model={world.digest}": "model_not_found",
        f"/v1/artifacts/{world.artifact}": "artifact_not_found",
        f"/v1/artifacts/{world.artifact}/download": "artifact_not_found",
    }


def test_nothing_that_names_it_tells_others_of_it(world: World) -> None:
    """Every path of the OpenAPI document that names a job, a model or an artifact, those of later days too."""
    ids = {"job_id": world.done, "model": world.model, "artifact": world.artifact}
    codes = {"job_id": "job_not_found", "model": "model_not_found", "artifact": "artifact_not_found"}
    tried = set()
    for path, methods in world.client.get("/openapi.json").json()["paths"].items():
        named = [name for name in ids if f"{{{name}}}" in path]
        for method in methods if named else ():
            answer = world.client.request(method, path.format(**ids), headers=world.bob)
            if method != "head":
                assert (answer.status_code, answer.json()["code"]) == (404, codes[named[0]]), f"{method} {path}"
            tried.add((method, path))
    assert {("post", "/v1/jobs/{job_id}:cancel"), ("get", "/v1/artifacts/{artifact}/download")} <= tried
    for page in (f"/jobs/{world.done}", f"/models/{world.model}"):
        assert world.client.get(page, headers=world.ann).status_code == 200
        assert world.client.get(page, headers=world.bob).status_code == 404


def test_others_cannot_change_it(world: World) -> None:
    for action, job in (("cancel", world.waiting), ("retry", world.done)):
        answer = world.client.post(f"/v1/jobs/{job}:{action}", headers=world.bob)
        assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
    for path in ("/v1/jobs", "/v1/jobs:plan"):
        answer = world.client.post(path, json={"model": world.model, "input_shapes": SHAPES}, headers=world.bob)
        assert (answer.status_code, answer.json()["code"]) == (404, "model_not_found")
    with world.service.database.reading() as session:
        assert jobs.get(session, world.waiting).state is JobState.QUEUED


def test_lists_hold_ones_own(world: World) -> None:
    for path, name, count in (("/v1/jobs", "jobs", 2), ("/v1/models", "models", 1), ("/v1/artifacts", "artifacts", 1)):
        assert len(world.client.get(path, headers=world.ann).json()[name]) == count
        assert world.client.get(path, headers=world.bob).json()[name] == []
        assert len(world.client.get(path, headers=AUTHORIZED).json()[name]) == count


def test_admins_see_everyones(world: World) -> None:
    admin = callers.headers(world.service, owner="carol", scopes=set(Scope))
    for path in paths(world):
        assert world.client.get(path, headers=admin).status_code in (200, 409), path
    assert world.client.post(f"/v1/jobs/{world.waiting}:cancel", headers=admin).status_code == 202
    listed = {
        owner: len(world.client.get("/v1/jobs", params={"owner": owner}, headers=admin).json()["jobs"])
        for owner in ("ann", "bob", "carol")
    }
    assert listed == {"ann": 2, "bob": 0, "carol": 0}


def test_only_admins_ask_for_others_jobs(world: World) -> None:
    answer = world.client.get("/v1/jobs?owner=ann", headers=world.bob)
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
    assert len(world.client.get("/v1/jobs?owner=ann", headers=world.ann).json()["jobs"]) == 2


def test_a_retried_job_stays_its_owners(world: World) -> None:
    assert world.client.post(f"/v1/jobs/{world.waiting}:cancel", headers=world.ann).status_code == 202
    again = world.client.post(f"/v1/jobs/{world.waiting}:retry", headers=AUTHORIZED).json()
    assert again["owner"] == "ann"
    assert world.client.get(f"/v1/jobs/{again['id']}", headers=world.ann).status_code == 200


def test_whoever_uploads_the_same_bytes_has_the_model_too(world: World) -> None:
    upload = world.client.put("/v1/models?name=mine", content=b"dynamic model", headers=world.bob)
    assert (upload.status_code, upload.json()["id"]) == (201, world.model)
    assert world.client.put("/v1/models", content=b"dynamic model", headers=world.bob).status_code == 200
    found = world.client.get(f"/v1/artifacts/{world.artifact}", headers=world.bob).json()
    assert (found["model_digest"], found["job_id"]) == (world.digest, None)
    (listed,) = world.client.get("/v1/artifacts", headers=world.bob).json()["artifacts"]
    best = world.client.get(f"/v1/best?model={world.model}", headers=world.bob).json()["artifact"]
    assert listed == best == found
    assert world.client.get(f"/v1/artifacts/{world.artifact}", headers=world.ann).json()["job_id"] == world.done
    assert world.client.get(f"/v1/jobs/{world.done}", headers=world.bob).status_code == 404


def test_records_are_everyones_without_the_jobs(world: World) -> None:
    told = {
        name: {record["job"] for record in world.client.get("/v1/records", headers=headers).json()["records"]}
        for name, headers in (("ann", world.ann), ("bob", world.bob), ("admin", AUTHORIZED))
    }
    assert told == {"ann": {world.done}, "bob": {None}, "admin": {world.done}}


def test_the_fleet_is_everyones_without_the_jobs(world: World) -> None:
    with world.service.database.transaction() as session:
        workers.quarantine(session, "t/k/board", job_id=world.done, reason="silent", now=datetime.now(UTC), seconds=60)
    for headers, waiting, done in ((world.ann, world.waiting, world.done), (world.bob, None, None)):
        (worker,) = world.client.get("/v1/workers", headers=headers).json()["workers"]
        assert (worker["current_job"], worker["busy"]) == (waiting, True)
        (aside,) = world.client.get("/v1/devices", headers=headers).json()["quarantined"]
        assert aside["job"] == done


def test_idempotency_keys_are_ones_own(world: World) -> None:
    world.client.put("/v1/models", content=b"dynamic model", headers=world.bob)
    body = {"model": world.model, "input_shapes": SHAPES}
    made = [
        world.client.post("/v1/jobs", json=body, headers={**headers, "Idempotency-Key": "key"}).json()
        for headers in (world.ann, world.bob, world.bob)
    ]
    assert [job["owner"] for job in made] == ["ann", "bob", "bob"]
    assert made[1]["id"] == made[2]["id"] != made[0]["id"]
