"""The page of data sets: what is listed, and what a refusal says."""

from __future__ import annotations

import json
import re

from fastapi.testclient import TestClient

from tests.support.api.factories import Service
from tests.support.api.scripted import ScriptedWorker


def add(client: TestClient, name: str = "val") -> str:
    content = json.dumps({"x": ["float32", [8, 3, 8, 8]], "labels": ["int64", [8]]}).encode()
    return str(client.post(f"/v1/datasets?name={name}", content=content).json()["id"])


def test_data_sets_are_listed_and_deleted(client: TestClient) -> None:
    found = add(client)
    page = client.get("/data").text
    assert ">val</a>" in page
    assert "x float32 3×8×8" in page
    assert "labels int64<" in page
    answer = client.post(f"/data/{found}/delete", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/data?deleted=val")
    assert "“val” was deleted" in client.get("/data?deleted=val").text
    assert "&lt;i&gt;" in client.get("/data?deleted=<i>").text


def test_a_jobs_page_says_what_the_rows_showed(client: TestClient, service: Service) -> None:
    found = add(client)
    model = client.put("/v1/models", content=b"static model").json()["id"]
    job = client.post("/v1/jobs", json={"model": model, "data": found}).json()["id"]
    ScriptedWorker(service).run(job)
    page = " ".join(re.sub(r"<[^>]+>", " ", client.get(f"/jobs/{job}").text).split())
    assert "Data set val: 150 of 200 rows judged, 50 others calibrated." in page
    assert "tuned f32 150 15 000 17 0.003 , 4 0.002 85 % top-1 98 % top-5 86 % 98 %" in page, page


def test_one_in_use_is_kept_and_its_job_named(client: TestClient) -> None:
    found = add(client)
    model = client.put("/v1/models", content=b"static model").json()["id"]
    made = client.post("/v1/jobs", json={"model": model, "data": found}).json()
    refused = client.post(f"/data/{found}/delete")
    assert refused.status_code == 409
    assert f"/jobs/{made['id']}" in refused.text
    assert found in client.get(f"/jobs/{made['id']}").text
    assert ">val</a>" in client.get("/data").text
