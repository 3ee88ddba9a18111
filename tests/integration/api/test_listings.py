"""What holds for every listing: bounded pages, stable orders, cursors that cannot be made up, filters that fit."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.documentation import openapi
from tests.support.api.factories import SHAPES, Service
from tests.support.api.scripted import ScriptedWorker

LISTINGS = {
    "/v1/models": "models",
    "/v1/jobs": "jobs",
    "/v1/artifacts": "artifacts",
    "/v1/records": "records",
    "/v1/workers": "workers",
    "/v1/tokens": "tokens",
    "/v1/groups": "groups",
    "/v1/datasets": "datasets",
}
MADE_UP = [
    "",
    "x",
    "r",
    "r-1",
    "r99999999999999999999999",
    "aGVsbG8",
    "MjAyNi0wMS0wMSBqLTE",
    "\N{SNOWMAN}",
    "%ff%fe",
    "MDAwMS0wMS0wMVQwMDowMDowMCsxNDowMCBqLTE",  # a time that is before all time in UTC
    "MjAyNi0wMS0wMVQwMDowMDowMCswMDowMCBqAA",  # an id with a NUL
]


def made(client: TestClient, model: str, **request: Any) -> str:
    answer = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **request})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def identity(entry: dict[str, Any]) -> str:
    known = entry.get("id") or entry.get("name")
    return str(known or (entry["job"], entry["workload_key"], entry["trial_number"]))


@pytest.fixture
def filled(client: TestClient, service: Service) -> None:
    """Five and more entries in every listing."""
    for number in range(5):
        model = client.put(f"/v1/models?name=net-{number}", content=f"static {number}".encode()).json()["id"]
        job = client.post("/v1/jobs", json={"model": model, "group": f"night-{number}"}).json()["id"]
        client.post("/v1/tokens", json={"name": f"ci {number}"})
        rows = json.dumps({"x": ["float32", [8 + number, 3, 8, 8]]})
        client.post(f"/v1/datasets?name=rows-{number}", content=rows.encode())
        worker = ScriptedWorker(service, trials=1)
        worker.run(job)
        worker.beat(id=f"host:{number}:1")


def test_every_listing_is_tested(lasting: TestClient) -> None:
    document = lasting.get("/openapi.json").json()
    paged = {
        path
        for _, path, operation in openapi.operations(document)
        if "page_token" in {parameter["name"] for parameter in operation.get("parameters", [])}
    }
    assert paged == LISTINGS.keys()


def test_pages_hold_every_entry_once_in_one_order(client: TestClient, filled: None) -> None:
    for path, name in LISTINGS.items():
        whole = client.get(path).json()
        assert len(whole[name]) >= 5, path
        assert whole["next_page_token"] is None, path
        found, token = [], None
        while True:
            page = client.get(path, params={"limit": 2} | ({"page_token": token} if token else {})).json()
            assert len(page[name]) <= 2
            found += [identity(entry) for entry in page[name]]
            token = page["next_page_token"]
            if token is None:
                break
        assert found == [identity(entry) for entry in whole[name]], path


def test_limits_have_bounds(lasting: TestClient) -> None:
    for path in LISTINGS:
        for limit in (1, 200):
            assert lasting.get(path, params={"limit": limit}).status_code == 200, path
        for wrong in ("0", "-1", "201", "9" * 30, "1.5", "many", ""):
            answer = lasting.get(path, params={"limit": wrong})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), (path, wrong)


@pytest.mark.parametrize("token", MADE_UP)
def test_cursors_that_are_made_up(lasting: TestClient, token: str) -> None:
    for path in LISTINGS:
        answer = lasting.get(path, params={"page_token": token})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_page_token"), path


def test_a_cursor_of_another_listing_is_no_error_of_the_service(client: TestClient, filled: None) -> None:
    tokens = {path: client.get(path, params={"limit": 1}).json()["next_page_token"] for path in LISTINGS}
    for path in LISTINGS:
        for token in tokens.values():
            assert client.get(path, params={"page_token": token}).status_code in (200, 400)


def test_a_cursor_that_is_too_long(lasting: TestClient) -> None:
    for path in LISTINGS:
        answer = lasting.get(path, params={"page_token": "a" * 501})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), path


def test_models_by_name(client: TestClient) -> None:
    for name in ("ResNet-50", "resnet_18", "yolo%"):
        client.put("/v1/models", params={"name": name}, content=name.encode())

    def named(part: str) -> list[str]:
        return [model["name"] for model in client.get("/v1/models", params={"name": part}).json()["models"]]

    assert named("resnet") == ["resnet_18", "ResNet-50"]
    assert named("%") == ["yolo%"]
    assert named("_") == ["resnet_18"]
    assert named("none") == []


def test_jobs_by_what_was_asked_for(client: TestClient, service: Service, model: str) -> None:
    plain = made(client, model)
    other = made(client, model, target="llvm -mcpu=znver4 -mattr=+avx2", tuner="ansor", labels={"team": "vision"})
    run = made(client, model, budget={"trials": 8})
    ScriptedWorker(service).run(run)

    def listed(**params: str) -> list[str]:
        answer = client.get("/v1/jobs", params=params)
        assert answer.status_code == 200, answer.text
        return [job["id"] for job in answer.json()["jobs"]]

    assert listed(target="llvm  -mattr=+avx2 -mcpu=znver4") == listed(tuner="ansor") == listed(text="visio") == [other]
    assert listed(target="llvm -mcpu=znver3") == listed(target="llvm -mcpu=znver3 -num-cores=2") == [run]
    assert listed(target="native") == [run, plain]
    assert listed(tuner="auto", state="queued") == [plain]
    assert listed(text=plain) == listed(text=plain[:-1]) == [plain]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert listed(created_after=later) == []
    assert listed(created_before=later) == [run, other, plain]


def test_artifacts_by_what_they_are_for(client: TestClient, service: Service, model: str) -> None:
    def published(**request: Any) -> str:
        job = made(client, model, **request)
        ScriptedWorker(service).run(job)
        return str(client.get(f"/v1/jobs/{job}").json()["artifact_id"])

    full, half = published(), published(precision="fp16", input_shapes={"x": [2, 3, 8, 8]})
    assert full != half

    def listed(**params: str) -> list[str]:
        answer = client.get("/v1/artifacts", params=params)
        assert answer.status_code == 200, answer.text
        return [artifact["id"] for artifact in answer.json()["artifacts"]]

    device = client.get(f"/v1/artifacts/{full}").json()["device_key"]
    assert (
        listed() == listed(model=model) == listed(device=device) == listed(target="llvm -mcpu=znver3") == [half, full]
    )
    assert listed(precision="fp16", target="llvm -mcpu=znver3 -num-cores=2") == [half]
    assert listed(precision="f32", device=device) == [full]
    assert listed(device="another") == listed(target="llvm -mcpu=skylake") == listed(precision="int8") == []
    other = client.put("/v1/models", content=b"static other").json()["id"]
    assert listed(model=other) == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/jobs?state=done", 400, "invalid_request"),
        ("/v1/jobs?tuner=autotvn", 400, "invalid_request"),
        ("/v1/jobs?target=lvm", 400, "unknown_target"),
        ("/v1/jobs?label=x", 400, "invalid_request"),
        ("/v1/jobs?label==x", 400, "invalid_request"),
        ("/v1/jobs?created_after=yesterday", 400, "invalid_request"),
        ("/v1/jobs?created_after=2026-01-01T00:00:00", 400, "invalid_request"),
        ("/v1/jobs?created_before=99999999999999999999", 400, "invalid_request"),
        ("/v1/jobs?created_before=0001-01-01T00:00:00%2B14:00", 400, "invalid_request"),
        ("/v1/jobs?stat=queued", 400, "invalid_request"),
        ("/v1/jobs?model=m-none", 404, "model_not_found"),
        ("/v1/artifacts?model=m-none", 404, "model_not_found"),
        ("/v1/artifacts?target=lvm", 400, "unknown_target"),
        ("/v1/artifacts?precision=auto", 400, "unknown_precision"),
        ("/v1/artifacts?precision=f31", 400, "unknown_precision"),
        ("/v1/records?tuner=autotvn", 400, "unknown_tuner"),
        ("/v1/records?target=lvm", 400, "unknown_target"),
        ("/v1/records?format=xml", 400, "invalid_request"),
        ("/v1/records?format=native", 400, "invalid_request"),
        ("/v1/records?tuner=auto", 400, "unknown_tuner"),
        ("/v1/records?job=j-none", 404, "job_not_found"),
    ],
)
def test_filters_that_cannot_be_right(lasting: TestClient, path: str, status: int, code: str) -> None:
    answer = lasting.get(path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
