"""What holds for every path: who may come in, what errors look like, what the schema says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.documentation import error_tables
from domain import errors
from domain.targets import Device
from storage import workers
from tests.support.api.factories import Service, open_service
from tests.support.api.scripted import ScriptedWorker
from tunesmith import errors as local

ERRORS = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"
OPEN = {"/healthz", "/readyz"}


def operations(client: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_everything_but_health_needs_the_token(lasting: TestClient) -> None:
    for method, path, _ in operations(lasting):
        for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}):
            answer = lasting.request(method, re.sub(r"\{.*?\}", "x", path), headers=headers)
            if path in OPEN:
                assert answer.status_code == 200
            else:
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path
                assert answer.headers["www-authenticate"] == "Bearer"


def test_without_a_token_everyone_may_come_in(tmp_path: Path) -> None:
    with open_service(tmp_path, token=None, open=True) as service, TestClient(service.app) as client:
        assert client.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"{}", "set model, or like (a job whose model is used)"),
        (b'{"model": ', "the body is not valid JSON: Expecting value at character 10"),
        (b"", "the body is missing"),
        (b'{"model": "m-1", "modle": 1}', "unknown field 'modle'"),
        (b'{"model": "m-1", "measure": {"nmber": 1}}', "unknown field 'measure.nmber'"),
        (b'{"model": "m-1", "group": "a b"}', "group contains invalid characters; it must match ^["),
        (b'{"model": "m-1", "priority": 10}', "priority: this should be less than or equal to 9"),
        (b'{"model": "m-\\u0000"}', "text must not contain NUL characters"),
    ],
)
def test_a_wrong_body_is_told_in_words(lasting: TestClient, body: bytes, detail: str) -> None:
    problem = lasting.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"}).json()
    assert problem["detail"].startswith(detail)
    assert problem["details"]["errors"]


def test_a_body_that_is_too_large_without_saying_so(lasting: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 64 * 1024

    answer = lasting.post("/v1/jobs", content=chunks(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_the_fleet(client: TestClient, service: Service) -> None:
    assert client.get("/v1/workers").json() == {"workers": [], "warnings": [], "next_page_token": None}
    assert client.get("/v1/targets").json() == {"targets": ["native"], "kinds": ["llvm", "cuda"]}
    assert client.get("/v1/engines").json() == {"engines": []}
    ScriptedWorker(service).beat()
    worker = client.get("/v1/workers").json()["workers"][0]
    assert (worker["alive"], worker["native_target"]) == (True, "llvm -mcpu=znver3 -num-cores=2")
    assert worker["toolchains"] == ["relay/tvm-0.19.0/llvm-22.1.8"]
    assert client.get("/v1/targets").json()["targets"] == ["native", "llvm -mcpu=znver3"]
    assert client.get("/v1/devices").json()["devices"][0]["workers"] == 1
    relay = {"name": "relay", "toolchains": ["relay/tvm-0.19.0/llvm-22.1.8"], "workers": 1}
    assert client.get("/v1/engines").json() == {"engines": [relay]}
    gpus = tuple(Device(key=f"cuda/a/{name}", name="A", threads=1) for name in ("sm_90", "sm_9"))
    ScriptedWorker(service).beat(id="gpu:1:1", accelerators=gpus)
    assert client.get("/v1/targets").json()["targets"] == ["native", "llvm -mcpu=znver3", "cuda -arch=sm_90"]


def test_gpus_and_quarantined_devices_are_shown(client: TestClient, service: Service) -> None:
    gpu = Device(key="cuda/NVIDIA-H200/sm_90", name="NVIDIA H200", threads=1)
    ScriptedWorker(service).beat(accelerators=(gpu,))
    now = datetime.now(UTC)
    with service.database.transaction() as session:
        for device, seconds in (("boards:9190/pi4/10.0.0.7:9091", 60.0), ("boards:9190/pi4/10.0.0.8:9091", 0.0)):
            workers.quarantine(session, device, job_id="j-1", reason="it fell silent", now=now, seconds=seconds)
    assert client.get("/v1/workers").json()["workers"][0]["accelerators"] == [{"key": gpu.key, "name": gpu.name}]
    found = client.get("/v1/devices").json()
    assert [(device["key"], device["kind"], device["workers"]) for device in found["devices"]] == [(gpu.key, "gpu", 1)]
    (aside,) = found["quarantined"]
    assert (aside["id"], aside["job"], aside["reason"]) == ("boards:9190/pi4/10.0.0.7:9091", "j-1", "it fell silent")


def test_whatever_http_answers_with_says_what_to_do() -> None:
    """Not 500: what failed inside the service is for whoever reads its log."""
    assert [kind.code for kind in errors.every() if kind.status != 500 and not kind.default_hint] == []


def test_every_code_is_documented_as_it_is_declared() -> None:
    document = ERRORS.read_text(encoding="utf-8")
    assert error_tables.renewed(document) == document, "run ./run docs"
    for code in [*(kind.code for kind in errors.every()), *local.OWN_CODES]:
        assert f"`{code}`" in document


def test_the_drawing_of_the_errors_names_every_class_once() -> None:
    for module in (errors, local):
        drawn = re.findall(r"\b[A-Z]\w+", (module.__doc__ or "").split("::")[1].split("\n\n")[1])
        declared = [
            kind.__name__ for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Exception)
        ]
        assert sorted(name for name in drawn if name in declared) == sorted(declared)


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in errors.every()]
    assert len(set(codes)) == len(codes)
