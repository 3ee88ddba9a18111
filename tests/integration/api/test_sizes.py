"""Jobs of several sizes: how they are requested, shown, canceled and refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from domain.jobs import JobState
from storage import artifacts, jobs
from tests.support.api.factories import Service
from tests.support.storage.factories import artifact

SHAPES = {"x": [[1, 4, 8], 3, 8, 8]}


def make(client: TestClient, model: str, **request: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **request})
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


def shares(job: dict[str, Any]) -> dict[str, Any]:
    return {size["name"]: pytest.approx(size["share"]) for size in job["sizes"]}


def test_a_job_shows_its_sizes_and_their_parts(client: TestClient, model: str) -> None:
    made = make(client, model, padding={"x": 0.5}, budget={"trials": 90}, bundle_format="wheel")
    assert (made["input_shapes"], made["padding"], made["runtimes"]) == ({}, {"x": 0.5}, ["tvm"])
    assert made["sizes"][1] == {
        "name": "batch=4",
        "values": {"batch": 4},
        "input_shapes": {"x": [4, 3, 8, 8]},
        "share": pytest.approx(1 / 3),
    }
    job = client.get(f"/v1/jobs/{made['id']}").json()
    assert [(size["name"], size["state"], size["artifact"]) for size in job["sizes"]] == [
        ("batch=1", "queued", None),
        ("batch=4", "queued", None),
        ("batch=8", "queued", None),
    ]
    part = client.get(f"/v1/jobs/{job['sizes'][0]['job']}").json()
    assert (part["part_of"], part["sizes"], part["input_shapes"]) == (job["id"], [], {"x": [1, 3, 8, 8]})
    assert (part["budget"]["trials"], part["bundle_format"], part["runtimes"]) == (30, "shared", ["tvm"])
    assert job["part_of"] is None


def test_parts_are_listed_on_request(client: TestClient, model: str) -> None:
    made = make(client, model, group="night")
    assert [job["id"] for job in client.get("/v1/jobs").json()["jobs"]] == [made["id"]]
    parts = client.get(f"/v1/jobs?part_of={made['id']}").json()["jobs"]
    assert [part["input_shapes"]["x"][0] for part in parts] == [8, 4, 1]
    assert client.get("/v1/groups").json()["groups"][0]["jobs"] == 1


@pytest.mark.parametrize("dimension", [4, [4], {"4": 7}])
def test_one_value_is_a_job_as_ever(client: TestClient, model: str, dimension: Any) -> None:
    made = make(client, model, input_shapes={"x": [dimension, 3, 8, 8]})
    assert (made["sizes"], made["input_shapes"]) == ([], {"x": [4, 3, 8, 8]})
    assert len(made["runtimes"]) > 1
    assert client.get(f"/v1/jobs?part_of={made['id']}").json()["jobs"] == []


def test_frequencies_divide_the_budget(client: TestClient, model: str) -> None:
    stated = make(client, model, input_shapes={"x": [{"1": 6, "4": 3}, 3, 8, 8]})
    assert shares(stated) == {"batch=1": pytest.approx(2 / 3), "batch=4": pytest.approx(1 / 3)}
    seen = [
        {"input_shapes": {"x": [1, 3, 8, 8]}, "count": 6},
        {"input_shapes": {"x": [2, 3, 8, 8]}, "count": 2},
        {"input_shapes": {"x": [9, 3, 8, 8]}, "count": 1},
    ]
    observed = make(client, model, input_shapes={"x": [[1, 4], 3, 8, 8]}, frequencies=seen)
    assert shares(observed) == shares(stated)


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        ({"runner": "none"}, "sizes_not_supported", "runner 'none' builds one size, and the request has 3"),
        ({"runner": "rpc", "rpc": {"tracker": "a:1", "key": "k"}}, "sizes_not_supported", "runner 'rpc'"),
        ({"target": "cuda -arch=sm_90"}, "sizes_not_supported", "bundles for cuda"),
        ({"bundle_format": "tvm"}, "sizes_not_supported", "format 'tvm'"),
        ({"bundle_format": "object"}, "sizes_not_supported", "format 'object'"),
        ({"bundle_format": "system-lib"}, "sizes_not_supported", "format 'system-lib'"),
        ({"input_shapes": {"x": [list(range(1, 18)), 3, 8, 8]}}, "invalid_sizes", "17 sizes"),
        ({"input_shapes": {"x": [[1, 4, 1], 3, 8, 8]}}, "invalid_sizes", "has 1 more than once"),
        ({"input_shapes": {"x": [[1, 0], 3, 8, 8]}}, "shape_mismatch", "cannot be 0"),
        ({"input_shapes": {"x": [[], 3, 8, 8]}}, "shape_mismatch", "cannot be 0"),
        ({"input_shapes": {"x": [1, [3, 4], 8, 8]}}, "shape_mismatch", "dimension 1 of input 'x' is 3 in the model"),
        ({"padding": {"y": 0}}, "invalid_padding", "names 'y'"),
        ({"padding": {"x": 0}, "input_shapes": {"x": [1, 3, 8, 8]}}, "invalid_padding", "no effect"),
        ({"frequencies": [{"input_shapes": {"x": [1, 3, 9, 8]}, "count": 1}]}, "invalid_frequencies", "large enough"),
        ({"input_shapes": {"x": [{"1": 0, "4": 1}, 3, 8, 8]}}, "invalid_request", "greater than 0"),
        ({"input_shapes": {"x": [{"a": 1}, 3, 8, 8]}}, "invalid_request", "integer"),
        ({"input_shapes": {"x": [[1, "b"], 3, 8, 8]}}, "invalid_request", "integer"),
        ({"input_shapes": {"x": [True, 3, 8, 8]}}, "invalid_request", "true or false"),
        ({"frequencies": [{"input_shapes": {"x": [1]}, "count": 0}]}, "invalid_request", "greater than or equal to 1"),
        ({"frequencies": [{"input_shapes": {"x": [1]}, "often": 1}]}, "invalid_request", "count"),
        ({"padding": {"x": "a"}}, "invalid_request", "number"),
    ],
)
def test_wrong_requests_are_refused(
    client: TestClient, model: str, request_: dict[str, Any], code: str, said: str
) -> None:
    answer = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **request_})
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    assert said in answer.text
    assert answer.json()["hint"]
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_modules_have_one_size(client: TestClient) -> None:
    module = client.put("/v1/models?format=irmodule", content=b"a module").json()["id"]
    answer = client.post("/v1/jobs", json={"model": module, "input_shapes": SHAPES})
    assert (answer.status_code, answer.json()["code"]) == (400, "sizes_not_supported")


def test_plans_have_one_size(client: TestClient, model: str) -> None:
    answer = client.post("/v1/jobs:plan", json={"model": model, "input_shapes": SHAPES})
    assert (answer.status_code, answer.json()["code"]) == (400, "sizes_not_planned")
    assert "Plan one size" in answer.json()["hint"]


def test_rows_fit_every_size(client: TestClient, model: str) -> None:
    client.post("/v1/datasets?name=val", content=json.dumps({"x": ["float32", [4, 3, 8, 8]]}).encode())
    make(client, model, input_shapes={"x": [[1, 4], 3, 8, 8]}, data="val")
    for shape in ([[1, 8], 3, 8, 8], [1, 3, [8, 9], 8]):
        answer = client.post("/v1/jobs", json={"model": model, "input_shapes": {"x": shape}, "data": "val"})
        assert (answer.status_code, answer.json()["code"]) == (400, "data_mismatch")


def test_parts_are_canceled_and_retried_with_their_job(client: TestClient, model: str) -> None:
    made = make(client, model)
    part = client.get(f"/v1/jobs/{made['id']}").json()["sizes"][0]["job"]
    for action in ("cancel", "retry"):
        answer = client.post(f"/v1/jobs/{part}:{action}")
        assert (answer.status_code, answer.json()["code"]) == (409, "job_is_part")
        assert answer.json()["details"] == {"job": made["id"]}
    client.post(f"/v1/jobs/{made['id']}:cancel")
    assert {size["state"] for size in client.get(f"/v1/jobs/{made['id']}").json()["sizes"]} == {"canceled"}
    again = client.post(f"/v1/jobs/{made['id']}:retry").json()
    assert again["sizes"] == made["sizes"]
    assert len(client.get(f"/v1/jobs?part_of={again['id']}").json()["jobs"]) == 3


def test_a_job_like_one_of_several_sizes(client: TestClient, model: str) -> None:
    old = make(client, model, input_shapes={"x": [{"1": 6, "4": 3}, 3, 8, 8]}, padding={"x": 1})
    same = client.post("/v1/jobs", json={"like": old["id"]}).json()
    assert (shares(same), same["padding"]) == (shares(old), {"x": 1.0})
    rare = make(client, model, input_shapes={"x": [{"1": 99, "4": 1}, 3, 8, 8]})
    assert shares(client.post("/v1/jobs", json={"like": rare["id"]}).json()) == shares(rare)
    one = client.post("/v1/jobs", json={"like": old["id"], "input_shapes": {"x": [2, 3, 8, 8]}}).json()
    assert (one["sizes"], one["padding"], one["input_shapes"]) == ([], {}, {"x": [2, 3, 8, 8]})
    assert len(one["runtimes"]) > 1, "one runtime was not requested, but follows from several sizes"
    several = client.post("/v1/jobs", json={"like": one["id"], "input_shapes": SHAPES}).json()
    assert len(several["sizes"]) == 3


def publish(service: Service, job_id: str, **changes: Any) -> str:
    with service.database.transaction() as session:
        job = jobs.claim(session, job_id, worker_id="w", now=datetime.now(UTC), lease_seconds=60, max_attempts=3)
        assert job is not None
        assert job.lease is not None
        made = artifacts.add(session, artifact(job_id, job_id, model_digest=job.request.model_digest, **changes))
        jobs.finish(session, job_id, job.lease, state=JobState.SUCCEEDED, artifact_id=made.id, now=datetime.now(UTC))
        return made.id


def test_finished_sizes_show_their_speedups_and_the_bundle_its_sizes(
    client: TestClient, service: Service, model: str
) -> None:
    made = make(client, model)
    first = client.get(f"/v1/jobs/{made['id']}").json()["sizes"][0]["job"]
    with service.database.reading() as session:
        sizes = jobs.get(session, made["id"]).request.sizes
    of_part = publish(service, first, bundle_format="part", input_shapes={"x": (1, 3, 8, 8)})
    joint = publish(service, made["id"], sizes=sizes, input_shapes={"x": (0, 3, 8, 8)})
    size = client.get(f"/v1/jobs/{made['id']}").json()["sizes"][0]
    assert (size["artifact"], size["state"]) == (of_part, "succeeded")
    assert (size["median"], size["speedup_over_untuned"]) == (0.5e-3, pytest.approx(2.0))
    found = client.get(f"/v1/best?model={model}&input_shape=x:4,3,8,8").json()
    assert found["artifact"]["id"] == joint
    assert found["artifact"]["sizes"] == made["sizes"]
    assert "x:1/4/8,3,8,8" in found["why"]
    assert [one["id"] for one in client.get("/v1/artifacts").json()["artifacts"]] == [joint]
    assert client.get(f"/v1/best?model={model}&input_shape=x:2,3,8,8").status_code == 404
