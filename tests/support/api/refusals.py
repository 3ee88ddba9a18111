"""For every code that a request can be refused with, a request that is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text, update
from sqlalchemy.exc import OperationalError

from domain import errors
from storage import idempotency
from storage.tables import TokenRow
from tests.support.api.factories import AUTHORIZED, SHAPES, Service, make_service
from tests.support.api.scripted import ScriptedWorker

RECORD = (
    b'{"input": ["llvm -keys=cpu -mcpu=znver3", "dense_nopack.x86", [["TENSOR", [1, 4], "float32"], '
    b'["TENSOR", [4, 4], "float32"], null, "float32"], {}], "config": {"index": 1, "code_hash": null, "entity": []}, '
    b'"result": [[0.001], 0, 0.1, 1700000000.0], "version": 0.2, "tvm_version": "0.19.0"}\n'
)
PLACE = {
    "tuner": "autotvm",
    "target": "llvm -mcpu=znver3",
    "threads": 2,
    "device": "a board",
    "toolchain": "relay/tvm-0.19.0/llvm-22.1.8",
}


@dataclass
class World:
    """A service with a model; a refusal makes what else it needs."""

    client: TestClient
    service: Service
    model: str
    home: Path
    monkeypatch: pytest.MonkeyPatch

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.post(path, json=body, headers=headers)

    def ask(self, **request: Any) -> Any:
        return self.post("/v1/jobs", {"model": self.model, "input_shapes": SHAPES, **request})

    def job(self, **request: Any) -> str:
        return str(self.ask(**request).json()["id"])

    def finished(self) -> dict[str, Any]:
        job = self.job()
        ScriptedWorker(self.service).run(job)
        found: dict[str, Any] = self.client.get(f"/v1/jobs/{job}").json()
        return found

    def digest(self) -> str:
        return str(self.client.get(f"/v1/artifacts/{self.finished()['artifact_id']}").json()["digest"])

    def token(self, **draft: Any) -> dict[str, str]:
        """Headers of a new one."""
        made = self.post("/v1/tokens", {"name": "ci", **draft}).json()
        return {"Authorization": f"Bearer {made['token']}"}

    @contextmanager
    def elsewhere(self, **settings: Any) -> Iterator[TestClient]:
        """The same service with other settings."""
        other = make_service(self.home, **settings)
        with TestClient(other.app, headers=AUTHORIZED, raise_server_exceptions=False) as client:
            yield client
        other.database.close()


Ask = Callable[[World], Any]


def _too_large(world: World) -> Any:
    with world.elsewhere(max_model_bytes=10) as client:
        return client.put("/v1/models", content=b"x" * 11)


def _mismatch(world: World) -> Any:
    key = {"Idempotency-Key": "k"}
    world.post("/v1/jobs", {"model": world.model, "input_shapes": SHAPES}, **key)
    return world.post("/v1/jobs", {"model": world.model, "input_shapes": SHAPES, "tuner": "ansor"}, **key)


def _expired(world: World) -> Any:
    headers = world.token(expires_in_seconds=60)
    with world.service.database.transaction() as session:
        session.execute(update(TokenRow).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    return world.client.get("/v1/jobs", headers=headers)


def _other_site(world: World) -> Any:
    with world.elsewhere(open=True, token=None) as client:
        return client.post("/v1/jobs/j-1:cancel", headers={"Authorization": "", "Sec-Fetch-Site": "cross-site"})


def _rate(world: World) -> Any:
    with world.elsewhere(rate_per_second=0.01, rate_burst=1) as client:
        client.get("/v1/jobs")
        return client.get("/v1/jobs")


def _quota(world: World) -> Any:
    headers = world.token(quota={"queued_jobs": 0})
    body = {"model": world.model, "input_shapes": SHAPES}
    return world.post("/v1/jobs", body, **headers)


def _bytes_gone(world: World) -> Any:
    digest = world.digest()
    world.service.blobs.delete(digest)
    return world.client.get(f"/v1/artifacts/{digest}/download")


def _answered_meanwhile(world: World) -> Any:
    world.monkeypatch.setattr(idempotency.IdempotentRequest, "recall", lambda *_, **__: None)
    request: dict[str, Any] = {"params": PLACE, "content": RECORD, "headers": {"Idempotency-Key": "k"}}
    world.client.post("/v1/records", **request)
    return world.client.post("/v1/records", **request)


def _plans_at_once(world: World) -> Any:
    slots = world.service.app.state.services.plan_slots
    ScriptedWorker(world.service).beat()
    slots.acquire()
    try:
        return world.post("/v1/jobs:plan", {"model": world.model, "input_shapes": SHAPES})
    finally:
        slots.release()


def _plan_without_time(world: World) -> Any:
    ScriptedWorker(world.service).beat()
    world.service.planner.seconds, world.service.planner.slow = 0.1, {"relay": 60.0, "relax": 60.0}
    return world.post("/v1/jobs:plan", {"model": world.model, "input_shapes": SHAPES})


def _broker_away(world: World) -> Any:
    world.service.publisher.down = True
    return world.client.get("/readyz")


def _deleted_artifact(world: World) -> Any:
    found = world.finished()["artifact_id"]
    assert world.client.delete(f"/v1/artifacts/{found}").is_success
    return world.client.get(f"/v1/artifacts/{found}/download")


def _deleted_model(world: World) -> Any:
    assert world.client.delete(f"/v1/models/{world.model}").is_success
    return world.ask()


def _add_rows(world: World, shape: tuple[int, ...] = (8, 3, 8, 8)) -> Any:
    content = json.dumps({"x": ["float32", shape]}).encode()
    return world.client.post("/v1/datasets?name=val", content=content)


def _data_set_in_use(world: World) -> Any:
    _add_rows(world)
    world.job(data="val")
    return world.client.delete("/v1/datasets/val")


def _deleted_data_set(world: World) -> Any:
    made = _add_rows(world).json()["id"]
    world.client.delete("/v1/datasets/val")
    return world.client.get(f"/v1/datasets/{made}")


def _taken_name(world: World) -> Any:
    _add_rows(world)
    return _add_rows(world, (9, 3, 8, 8))


def _rows_of_another_model(world: World) -> Any:
    _add_rows(world, (8, 4))
    return world.ask(data="val")


def _model_in_use(world: World) -> Any:
    world.job()
    return world.client.delete(f"/v1/models/{world.model}")


def _blobs_that_fail(error: type[errors.BlobStoreUnavailable]) -> Ask:
    def ask(world: World) -> Any:
        def put(*_: object, **__: object) -> None:
            raise error("the store does not answer")

        world.monkeypatch.setattr(type(world.service.blobs), "put", put)
        return world.client.put("/v1/models", content=b"some bytes")

    return ask


def _database_away(world: World) -> Any:
    def reading(_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("connection refused by a-host"))

    world.monkeypatch.setattr(type(world.service.database), "reading", reading)
    answer = world.client.get("/v1/jobs")
    assert "a-host" not in answer.text
    # Who has a token of their own is looked up before anything is routed.
    assert world.client.get("/v1/jobs", headers={"Authorization": "Bearer tsk_x"}).status_code == 503
    return answer


def _database_damaged(world: World) -> Any:
    with world.service.database.transaction() as session:
        session.execute(text("ALTER TABLE tokens RENAME TO kept_tokens"))
        session.execute(text("ALTER TABLE models RENAME TO kept_models"))
    answer = world.client.get("/v1/models")
    assert "models" not in answer.json()["detail"]
    assert world.client.get("/v1/jobs", headers={"Authorization": "Bearer tsk_x"}).json()["code"] == "database_damaged"
    assert world.client.get("/healthz").status_code == 200
    return answer


def _range(world: World) -> Any:
    path = f"/v1/artifacts/{world.digest()}/download"
    return world.client.get(path, headers={"Range": "bytes=99999999-"})


_SEVERAL: dict[str, Any] = {"x": [[1, 4], 3, 8, 8]}


def _part(world: World) -> str:
    job = world.job(input_shapes=_SEVERAL)
    return str(world.client.get(f"/v1/jobs/{job}").json()["sizes"][0]["job"])


REFUSALS: dict[str, tuple[int, Ask]] = {
    "invalid_request": (400, lambda world: world.ask(misspelled=1)),
    "shape_required": (400, lambda world: world.ask(input_shapes={})),
    "invalid_sizes": (400, lambda world: world.ask(input_shapes={"x": [[4, 4], 3, 8, 8]})),
    "invalid_frequencies": (400, lambda world: world.ask(frequencies=[{"input_shapes": SHAPES, "count": 1}])),
    "invalid_padding": (400, lambda world: world.ask(input_shapes=_SEVERAL, padding={"y": 0})),
    "sizes_not_supported": (400, lambda world: world.ask(input_shapes=_SEVERAL, runner="none")),
    "sizes_not_planned": (
        400,
        lambda world: world.post("/v1/jobs:plan", {"model": world.model, "input_shapes": _SEVERAL}),
    ),
    "shape_mismatch": (400, lambda world: world.ask(input_shapes={"y": [1]})),
    "unknown_target": (400, lambda world: world.ask(target="lvm")),
    "unsupported_target": (400, lambda world: world.ask(target="cuda -arch=sm_90", tuner="autotvm")),
    "unknown_tuner": (400, lambda world: world.ask(tuner="autotvn")),
    "unknown_precision": (400, lambda world: world.ask(precision="f31")),
    "unknown_runner": (400, lambda world: world.ask(runner="remote")),
    "invalid_option": (400, lambda world: world.ask(tuner="ansor", tuner_options={"search": "ga"})),
    "invalid_operator": (400, lambda world: world.post("/v1/models:operator", {"operator": "dense", "shapes": {}})),
    "invalid_budget": (400, lambda world: world.ask(budget={"trials": 0})),
    "invalid_page_token": (400, lambda world: world.client.get("/v1/jobs?page_token=x")),
    "invalid_webhook": (400, lambda world: world.ask(webhook={"url": "http://127.0.0.1:9/"})),
    "unauthorized": (401, lambda world: world.client.get("/v1/jobs", headers={"Authorization": "Bearer no"})),
    "token_expired": (401, _expired),
    "forbidden": (403, _other_site),
    "missing_scope": (403, lambda world: world.post("/v1/jobs/j-1:cancel", **world.token(scopes=["read"]))),
    "model_not_found": (404, lambda world: world.ask(model="m-none")),
    "token_not_found": (404, lambda world: world.client.get("/v1/tokens/t-none")),
    "job_not_found": (404, lambda world: world.client.get("/v1/jobs/j-none")),
    "group_not_found": (404, lambda world: world.post("/v1/groups/none:cancel")),
    "artifact_not_found": (404, lambda world: world.client.get("/v1/artifacts/a-none")),
    "blob_not_found": (404, _bytes_gone),
    "route_not_found": (404, lambda world: world.client.get("/v1/none")),
    "method_not_allowed": (405, lambda world: world.client.delete("/v1/jobs")),
    "conflict": (409, _answered_meanwhile),
    "job_not_finished": (409, lambda world: world.client.get(f"/v1/jobs/{world.job()}/report")),
    "job_is_part": (409, lambda world: world.post(f"/v1/jobs/{_part(world)}:cancel")),
    "job_already_finished": (409, lambda world: world.post(f"/v1/jobs/{world.finished()['id']}:cancel")),
    "blob_too_large": (413, _too_large),
    "body_too_large": (413, lambda world: world.ask(labels={"x": "x" * 2_000_000})),
    "range_not_satisfiable": (416, _range),
    "idempotency_mismatch": (422, _mismatch),
    "invalid_model": (422, lambda world: world.client.put("/v1/models", content=b"bad bytes")),
    "unsupported_operators": (422, lambda world: world.client.put("/v1/models", content=b"unknown operators")),
    "rate_limited": (429, _rate),
    "quota_exceeded": (429, _quota),
    "internal_error": (500, lambda world: world.client.put("/v1/models", content=b"crash")),
    "engine_not_installed": (503, lambda world: world.client.put("/v1/models", content=b"no engine")),
    "planner_busy": (503, _plans_at_once),
    "plan_time_limit": (422, _plan_without_time),
    "not_ready": (503, _broker_away),
    "database_unavailable": (503, _database_away),
    "database_damaged": (503, _database_damaged),
    "artifact_deleted": (410, _deleted_artifact),
    "model_deleted": (410, _deleted_model),
    "model_in_use": (409, _model_in_use),
    "data_mismatch": (400, _rows_of_another_model),
    "data_set_deleted": (410, _deleted_data_set),
    "data_set_in_use": (409, _data_set_in_use),
    "data_set_name_taken": (409, _taken_name),
    "data_set_not_found": (404, lambda world: world.client.get("/v1/datasets/none")),
    "invalid_data_set": (422, lambda world: world.client.post("/v1/datasets", content=b"no rows")),
    "blob_store_unavailable": (503, _blobs_that_fail(errors.BlobStoreUnavailable)),
    "blob_store_refused": (503, _blobs_that_fail(errors.BlobStoreRefused)),
    "blob_store_full": (503, _blobs_that_fail(errors.BlobStoreFull)),
}

NEVER_BY_HTTP = {
    "disk_full": "of a worker's host: its job waits",
    "too_much": "the base of those that come",
    "not_found": "the base of those that come",
    "deleted": "the base of those that come",
    "no_worker": "a warning in the answer to a job that is taken",
    "unavailable": "the bytes of an upload that another one removed: tests/integration/api/test_models.py has the race",
    "broker_unavailable": "a job is taken all the same; readiness says not_ready",
    "invalid_inputs": "of the client's run",
    "invalid_bundle": "of the client's run",
    "device_busy": "a job waits for its device",
    "tracker_unreachable": "of a job",
    "no_device": "of a job",
    "device_lost": "of a job",
    "cross_compiler_missing": "of a job",
    "compiler_missing": "of a job",
}
"""Codes whose status a job's failure would have, and why no request is answered with them."""
