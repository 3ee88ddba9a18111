from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from storage import garbage
from tests.support.api import callers
from tests.support.api.factories import Service


def rows(count: int = 8, **more: Any) -> bytes:
    return json.dumps({"x": ["float32", [count, 3, 8, 8]], **more}).encode()


def add(client: TestClient | httpx.Client, content: bytes | None = None, name: str = "val") -> httpx.Response:
    return client.post(f"/v1/datasets?name={name}", content=rows() if content is None else content)


def job(client: TestClient, data: str, **more: Any) -> httpx.Response:
    model = client.put("/v1/models", content=b"static model").json()["id"]
    return client.post("/v1/jobs", json={"model": model, "data": data, **more})


def test_a_data_set_is_added_found_listed_and_deleted(client: TestClient, service: Service) -> None:
    added = add(client)
    assert added.status_code == 201
    found = added.json()
    assert (found["name"], found["rows"], found["bytes"]) == ("val", 8, len(rows()))
    assert found["arrays"] == [{"name": "x", "dtype": "float32", "shape": [8, 3, 8, 8]}]
    assert service.blobs.path(found["digest"]).read_bytes() == rows()
    assert client.get("/v1/datasets").json()["datasets"] == [found]
    assert client.get(f"/v1/datasets/{found['id']}").json() == client.get("/v1/datasets/val").json() == found
    assert client.delete("/v1/datasets/val").json() == {"id": found["id"], "gone": True}
    assert client.delete(f"/v1/datasets/{found['id']}").json()["gone"]
    assert client.get("/v1/datasets").json()["datasets"] == []
    assert client.get(f"/v1/datasets/{found['id']}").json()["code"] == "data_set_deleted"
    assert client.get("/v1/datasets/val").json()["code"] == "data_set_not_found"
    with service.database.reading() as session:
        assert garbage.named(session, [found["digest"]]) == set()


def test_the_same_file_is_one_data_set_and_a_name_is_taken_once(client: TestClient) -> None:
    first = add(client).json()
    again = add(client, name="other")
    assert (again.status_code, again.json()) == (200, first)
    taken = add(client, rows(9))
    assert (taken.status_code, taken.json()["code"]) == (409, "data_set_name_taken")
    assert add(client, rows(9), name="more").status_code == 201
    client.delete("/v1/datasets/val")
    assert add(client).json()["id"] != first["id"]
    unnamed = client.post("/v1/datasets", content=rows(10)).json()
    assert unnamed["name"] == f"data-{unnamed['digest'][:12]}"


@pytest.mark.parametrize("content", [b"", b"no rows"])
def test_rejected_bytes_are_not_kept(client: TestClient, service: Service, content: bytes) -> None:
    answer = add(client, content)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_data_set")
    assert answer.json()["hint"]
    assert [path for path in service.home.glob("blobs/*/*") if path.parent.name != "incoming"] == []


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 201])
def test_names_are_plain(client: TestClient, name: str) -> None:
    assert client.post("/v1/datasets", params={"name": name}, content=rows()).status_code == 400


def test_data_sets_of_others_do_not_exist(client: TestClient, service: Service) -> None:
    client.headers = httpx.Headers(callers.headers(service, owner="ann"))
    mine = add(client).json()
    client.headers = httpx.Headers(callers.headers(service, owner="bob"))
    assert client.get(f"/v1/datasets/{mine['id']}").status_code == client.get("/v1/datasets/val").status_code == 404
    assert client.get("/v1/datasets").json()["datasets"] == []
    assert client.delete("/v1/datasets/val").status_code == 404
    theirs = add(client).json()
    assert theirs["digest"] == mine["digest"]
    assert theirs["id"] != mine["id"]
    assert client.delete("/v1/datasets/val").status_code == 200
    with service.database.reading() as session:
        assert garbage.named(session, [mine["digest"]]) == {mine["digest"]}


def test_a_job_names_its_data_set_by_id_and_keeps_it(client: TestClient) -> None:
    found = add(client).json()
    made = job(client, "val")
    assert made.status_code == 202, made.text
    assert made.json()["data"] == found["id"]
    held = client.delete("/v1/datasets/val")
    assert (held.status_code, held.json()["code"]) == (409, "data_set_in_use")
    assert held.json()["details"]["jobs"] == [made.json()["id"]]
    again = client.post("/v1/jobs", json={"like": made.json()["id"]}).json()
    assert again["data"] == found["id"]
    for each in (made.json(), again):
        client.post(f"/v1/jobs/{each['id']}:cancel")
    assert client.delete("/v1/datasets/val").status_code == 200


@pytest.mark.parametrize(
    ("content", "more", "code", "message"),
    [
        (rows(), {"data": "vak"}, "data_set_not_found", "vak"),
        (json.dumps({"z": ["float32", [8, 3, 8, 8]]}).encode(), {}, "data_mismatch", "lacks 'x'"),
        (json.dumps({"x": ["float32", [8, 3, 9, 8]]}).encode(), {}, "data_mismatch", "a row of array 'x' is 3×9×8"),
        (rows(labels=["int64", [8, 3]]), {}, "data_mismatch", "labels"),
        (rows(1), {"precision": "int8"}, "data_mismatch", "at least 2"),
        (rows(1), {"precision": "bf16"}, "data_mismatch", "at least 2"),
        (rows(), {"runner": "none"}, "invalid_option", "data would have no effect"),
    ],
)
def test_data_that_does_not_fit_is_refused_before_anything_is_queued(
    client: TestClient, content: bytes, more: dict[str, Any], code: str, message: str
) -> None:
    add(client, content)
    refused = job(client, **{"data": "val", **more})
    assert (refused.json()["code"], refused.json()["detail"].count(message)) == (code, 1), refused.text
    assert refused.json()["hint"]
    assert client.get("/v1/jobs").json()["jobs"] == []
    plan = {"model": client.get("/v1/models").json()["models"][0]["id"], "data": "val", **more}
    assert client.post("/v1/jobs:plan", json=plan).json()["code"] == code
