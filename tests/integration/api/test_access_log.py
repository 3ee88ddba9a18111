"""The access log: who asked for what, with which answer, and no secrets."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from process import logs
from process.logs import LogFormat, LogLevel
from tests.support.api import callers
from tests.support.api.factories import Service, open_service
from tests.support.api.scripted import ScriptedWorker


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    found = map(json.loads, log.getvalue().splitlines())
    return [line for line in found if line["logger"] == "api.middleware.access_log"]


def test_each_request_is_one_line(client: TestClient, service: Service, log: io.StringIO) -> None:
    token, ann = callers.make(service, owner="ann")
    client.get("/v1/jobs?limit=5", headers={**ann, "X-Request-ID": "the-one"})
    client.head("/v1/models")
    client.get("/v1/jobs/j-none", headers={"Authorization": "Bearer wrong"})
    client.put("/v1/models?name=x.onnx", content=b"crash")
    found = lines(log)
    assert [(line["method"], line["path"], line["status"], line["owner"]) for line in found] == [
        ("GET", "/v1/jobs", 200, "ann"),
        ("HEAD", "/v1/models", 200, "local"),
        ("GET", "/v1/jobs/j-none", 401, None),
        ("PUT", "/v1/models", 500, "local"),
    ]
    assert (found[0]["request_id"], found[0]["level"], found[0]["address"]) == ("the-one", "info", "testclient")
    assert found[0]["message"].startswith("GET /v1/jobs 200 ")
    assert all(0 <= line["ms"] < 60_000 for line in found)
    assert [line["token"] for line in found] == [token.id, None, None, None]


def test_a_stream_is_one_line_when_it_ends(client: TestClient, service: Service, job: str, log: io.StringIO) -> None:
    ScriptedWorker(service).run(job)
    with client.stream("GET", f"/v1/jobs/{job}/events") as answer:
        assert not lines(log)
        answer.read()
    assert [line["path"] for line in lines(log)] == [f"/v1/jobs/{job}/events"]


def test_secrets_and_control_characters_are_left_out(client: TestClient, log: io.StringIO) -> None:
    secret = "tsk_" + "s" * 20
    client.get(f"/login?code={secret}")
    client.get(f"/v1/jobs/{secret}")
    client.get("/v1/jobs/a%0Afake%1B[2J")
    client.get("/v1/jobs/" + "x" * 5000)
    found = lines(log)
    assert secret not in log.getvalue()
    assert [line["path"] for line in found[:3]] == ["/login", "/v1/jobs/tsk_[redacted]", "/v1/jobs/a%0Afake%1B%5B2J"]
    assert len(found[3]["path"]) == 500


def test_the_text_form_is_one_line_too(client: TestClient, log: io.StringIO) -> None:
    logs.set_up(LogFormat.TEXT, LogLevel.INFO, stream=log)
    client.get("/healthz")
    [line] = [each for each in log.getvalue().splitlines() if "access_log" in each]
    assert "INFO api.middleware.access_log: GET /healthz 200 " in line
    assert " ms local - testclient [request_id=" in line


@pytest.mark.parametrize("how", ["setting", "level"])
def test_it_can_be_turned_off(tmp_path: Path, log: io.StringIO, how: str) -> None:
    if how == "level":
        logs.set_up(LogFormat.JSON, LogLevel.WARNING, stream=log)
    with open_service(tmp_path, access_log=how != "setting") as service, TestClient(service.app) as client:
        assert client.get("/healthz").status_code == 200
    assert not lines(log)
