from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.exc import OperationalError

from storage import database
from storage.database import Database
from tests.support.api.factories import AUTHORIZED, SHAPES, Service, open_service
from tests.support.api.scripted import ScriptedWorker

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def numbers(client: TestClient) -> dict[tuple[str, frozenset[str]], float]:
    """By name and label values."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def value(client: TestClient, name: str, *labels: str) -> float:
    return numbers(client)[name, frozenset(labels)]


def trials(client: TestClient) -> float:
    return sum(count for (name, _), count in numbers(client).items() if name == "tunesmith_trials_total")


def test_jobs_are_counted_by_state_and_the_queue_has_an_age(client: TestClient, service: Service, job: str) -> None:
    found = numbers(client)
    assert found["tunesmith_jobs", frozenset({"queued"})] == 1
    assert found["tunesmith_jobs", frozenset({"running"})] == 0
    assert found["tunesmith_queue_age_seconds", frozenset()] > 0
    client.post(f"/v1/jobs/{job}:cancel")
    assert value(client, "tunesmith_jobs", "canceled") == 1
    assert value(client, "tunesmith_queue_age_seconds") == 0


def test_trials_are_counted_from_the_first_look_on(client: TestClient, service: Service, model: str) -> None:
    def tuned() -> None:
        request = {"model": model, "input_shapes": SHAPES}
        ScriptedWorker(service, trials=3).run(client.post("/v1/jobs", json=request).json()["id"])

    tuned()
    assert trials(client) == 0
    tuned()
    assert trials(client) == 12
    assert value(client, "tunesmith_trials_total", "autotvm", "valid") == 8
    assert value(client, "tunesmith_trials_total", "autotvm", "run_timeout") == 4
    assert value(client, "tunesmith_trial_failures_total", "run_timeout") == 4
    assert value(client, "tunesmith_trial_failures_total", "build_error") == 0
    assert trials(client) == 12, "a look changes nothing"


def test_workers_are_counted_while_they_live(client: TestClient, service: Service) -> None:
    worker = ScriptedWorker(service)
    worker.beat(current_job="j-1")
    assert (value(client, "tunesmith_workers_alive"), value(client, "tunesmith_workers_busy")) == (1, 1)
    worker.beat(last_seen_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert (value(client, "tunesmith_workers_alive"), value(client, "tunesmith_workers_busy")) == (0, 0)


def test_requests_are_counted_by_route_not_by_path(client: TestClient) -> None:
    for path in ("m-1", "m-2", "m-3"):
        client.get(f"/v1/models/{path}")
    client.get("/nonsense/1")
    client.get("/nonsense/2")
    client.request("BREW", "/v1/models")
    found = numbers(client)
    assert found["tunesmith_http_requests_total", frozenset({"GET", "/v1/models/{model}", "404"})] == 3
    assert found["tunesmith_http_request_seconds_count", frozenset({"GET", "/v1/models/{model}"})] == 3
    assert found["tunesmith_http_requests_total", frozenset({"GET", "none", "404"})] == 2
    assert not any("BREW" in labels or "m-1" in str(labels) for _, labels in found)


def test_requests_that_fail_unexpectedly_are_counted_once(client: TestClient) -> None:
    assert client.put("/v1/models", content=b"crash").status_code == 500
    found = numbers(client)
    assert found["tunesmith_http_requests_total", frozenset({"PUT", "/v1/models", "500"})] == 1
    assert found["tunesmith_http_request_seconds_count", frozenset({"PUT", "/v1/models"})] == 1


def test_watchers_are_counted_and_gone_when_the_stream_ends(client: TestClient, service: Service, job: str) -> None:
    assert value(client, "tunesmith_event_watchers") == 0
    with service.app.state.services.metrics.watching():
        assert value(client, "tunesmith_event_watchers") == 1
    client.post(f"/v1/jobs/{job}:cancel")
    assert client.get(f"/v1/jobs/{job}/events").status_code == 200
    assert value(client, "tunesmith_event_watchers") == 0


def test_the_process_tells_its_memory(client: TestClient) -> None:
    assert value(client, "process_resident_memory_bytes") > 1e6


def test_a_database_that_is_away_hides_nothing_else(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Database) -> None:
        raise OperationalError("SELECT 1", None, Exception("gone"))

    assert value(client, "tunesmith_database_up") == 1
    monkeypatch.setattr(Database, "reading", away)
    found = numbers(client)
    assert found["tunesmith_database_up", frozenset()] == 0
    assert found["process_resident_memory_bytes", frozenset()] > 1e6


def test_metrics_need_a_token_unless_they_are_open(client: TestClient, tmp_path: Path) -> None:
    assert client.get("/metrics", headers={"Authorization": ""}).json()["code"] == "unauthorized"
    with open_service(tmp_path, metrics_open=True) as service, TestClient(service.app) as anyone:
        assert anyone.get("/metrics").status_code == 200
        assert anyone.get("/v1/jobs").status_code == 401


def test_every_metric_is_documented(client: TestClient) -> None:
    client.get("/v1/jobs")
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    documented = dict(re.findall(r"^\| `(tunesmith_\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE))
    kinds = {name.removesuffix("_total"): kind for name, kind in documented.items()}
    own = {name: kind for name, kind in kinds.items() if not name.startswith("tunesmith_worker_")}
    assert own == {name: found.type for name, found in families.items() if name.startswith("tunesmith_")}


def test_readiness_names_what_is_missing(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {"database": "ok", "broker": "ok", "blobs": "ok", "server": "ok"}
    assert client.get("/readyz").json() == {"status": "ready", "checks": everything}
    service.publisher.down = True
    problem = client.get("/readyz")
    assert (problem.status_code, problem.json()["code"]) == (503, "not_ready")
    assert problem.json()["details"]["checks"] == {**everything, "broker": "the broker does not respond"}
    (service.home / "blobs" / "incoming").rmdir()
    checks = client.get("/readyz").json()["details"]["checks"]
    assert checks == {
        **everything,
        "broker": "the broker does not respond",
        "blobs": "cannot write to the blob store: No such file or directory",
    }
    assert client.get("/healthz").json()["status"] == "ok"


def test_a_service_whose_database_is_locked_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PROBE_SECONDS", 0.1)
    with open_service(tmp_path) as service, TestClient(service.app) as client:
        with contextlib.closing(sqlite3.connect(service.home / "db.sqlite3")) as other:
            other.execute("BEGIN IMMEDIATE")
            started = time.monotonic()
            problem = client.get("/readyz")
            assert time.monotonic() - started < 10
        assert (problem.status_code, problem.json()["code"]) == (503, "not_ready")
        assert problem.json()["details"]["checks"]["database"] == "the database is locked or does not accept writes"
        assert client.get("/readyz").status_code == 200


def test_a_service_whose_disk_is_full_is_not_ready(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    problem = client.get("/readyz")
    assert (problem.status_code, problem.json()["code"]) == (503, "not_ready")
    checks = problem.json()["details"]["checks"]
    assert checks["database"] == "cannot write beside the database: No space left on device"
    assert checks["blobs"] == "no space left in the blob store"
    monkeypatch.undo()
    assert client.get("/readyz").status_code == 200


def test_a_server_that_stops_takes_no_more(client: TestClient, service: Service) -> None:
    service.app.state.services.stopping.set()
    assert (
        client.get("/readyz", headers=AUTHORIZED).json()["details"]["checks"]["server"] == "the server is shutting down"
    )
