"""Deleting models and artifacts over HTTP: what is refused, what stays, and what is said of what is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.support.api import callers
from tests.support.api.factories import AUTHORIZED, SHAPES, Service
from tests.support.api.scripted import ScriptedWorker

Headers = dict[str, str]


@dataclass(frozen=True)
class Shop:
    client: TestClient
    ann: Headers
    bob: Headers
    model: str
    job: str
    artifact: str

    def ask(self, method: str, path: str, who: Headers) -> tuple[int, Any]:
        answer: httpx.Response = self.client.request(method, path, headers=who)
        document = answer.json() if "json" in answer.headers.get("content-type", "") else None
        return answer.status_code, (document or {}).get("code", document)


@pytest.fixture
def shop(service: Service) -> Iterator[Shop]:
    """Ann's model, whose job has published an artifact; Bob has uploaded nothing."""
    ann, bob = callers.headers(service, owner="ann"), callers.headers(service, owner="bob")
    with TestClient(service.app) as client:
        model = upload(client, ann)
        draft = {"model": model, "input_shapes": SHAPES}
        job = client.post("/v1/jobs", json=draft, headers=ann).json()["id"]
        ScriptedWorker(service).run(job)
        artifact = client.get(f"/v1/jobs/{job}", headers=ann).json()["artifact_id"]
        yield Shop(client, ann, bob, model, job, artifact)


def upload(client: TestClient, who: Headers) -> str:
    return str(client.put("/v1/models?name=net", content=b"dynamic model", headers=who).json()["id"])


def test_a_deleted_artifact_is_gone_and_its_job_is_not(shop: Shop) -> None:
    path = f"/v1/artifacts/{shop.artifact}"
    assert shop.ask("DELETE", path, shop.ann) == (200, {"id": shop.artifact, "gone": True})
    assert shop.ask("GET", path, shop.ann) == (410, "artifact_deleted")
    assert shop.ask("GET", f"{path}/download", shop.ann) == (410, "artifact_deleted")
    assert shop.ask("GET", f"{path}/download", shop.bob) == (404, "artifact_not_found")
    assert shop.ask("GET", f"/v1/best?model={shop.model}", shop.ann) == (404, "artifact_not_found")
    assert shop.ask("GET", "/v1/artifacts", shop.ann)[1]["artifacts"] == []
    assert shop.ask("GET", f"/v1/jobs/{shop.job}", shop.ann)[1]["artifact_id"] == shop.artifact
    assert shop.ask("GET", f"/v1/jobs/{shop.job}/report", shop.ann)[0] == 200
    assert shop.ask("DELETE", path, shop.ann) == (200, {"id": shop.artifact, "gone": True})


def test_a_deleted_model_takes_its_artifacts_along(shop: Shop) -> None:
    path = f"/v1/models/{shop.model}"
    assert shop.ask("DELETE", path, shop.ann) == (200, {"id": shop.model, "gone": True})
    assert shop.ask("GET", path, shop.ann) == (410, "model_deleted")
    assert shop.ask("GET", path, shop.bob) == (404, "model_not_found")
    assert shop.ask("GET", f"/v1/artifacts/{shop.artifact}/download", shop.ann) == (410, "artifact_deleted")
    assert shop.ask("GET", "/v1/models", shop.ann)[1]["models"] == []
    status, job = shop.ask("GET", f"/v1/jobs/{shop.job}", shop.ann)
    assert (status, job["model_name"]) == (200, "net")
    draft = {"like": shop.job}
    refused = shop.client.post("/v1/jobs", json=draft, headers=shop.ann)
    assert (refused.status_code, refused.json()["code"]) == (410, "model_deleted")
    assert shop.ask("DELETE", path, shop.ann) == (200, {"id": shop.model, "gone": True})
    answer = shop.client.put("/v1/models?name=new", content=b"dynamic model", headers=shop.ann)
    assert (answer.status_code, answer.json()["id"], answer.json()["name"]) == (201, shop.model, "new")
    assert shop.client.post("/v1/jobs", json=draft, headers=shop.ann).status_code == 202


def test_what_two_have_is_deleted_for_one(shop: Shop) -> None:
    assert upload(shop.client, shop.bob) == shop.model
    refused = shop.client.delete(f"/v1/artifacts/{shop.artifact}", headers=shop.bob)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert shop.ask("DELETE", f"/v1/models/{shop.model}", shop.bob) == (200, {"id": shop.model, "gone": False})
    assert shop.ask("GET", f"/v1/models/{shop.model}", shop.bob) == (404, "model_not_found")
    assert shop.ask("GET", f"/v1/artifacts/{shop.artifact}", shop.ann)[0] == 200
    assert shop.ask("DELETE", f"/v1/artifacts/{shop.artifact}", AUTHORIZED)[0] == 200
