"""One trace from the request that made a job to its engines, as OpenTelemetry's own exporter receives it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from domain import errors
from process import tracing
from process.otel import OpenTelemetryTracer
from storage import job_queries, jobs
from tests.support.api.factories import AUTHORIZED, Service, open_service
from tests.support.worker.spans import is_child, trace_of
from worker import clock, observing

ROOT = Path(__file__).parents[3]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path, otel=True) as made:
        yield made


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(service.app, headers=AUTHORIZED, raise_server_exceptions=False) as client:
        yield client


def submitted(client: TestClient, **headers: str) -> str:
    model = client.put("/v1/models?name=net", content=b"static model").json()["id"]
    return str(client.post("/v1/jobs", json={"model": model}, headers=headers).json()["id"])


def one(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    [found] = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def test_a_jobs_spans_belong_to_the_trace_of_whoever_asked_for_it(
    client: TestClient, service: Service, spans: InMemorySpanExporter
) -> None:
    job_id = submitted(client, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    now = clock.now()
    with service.database.transaction() as session:
        job = jobs.claim(session, job_id, worker_id="w", now=now, lease_seconds=30, max_attempts=5)
    assert job is not None
    with observing.attempt(service.database, job), observing.stage("tune"):
        with observing.engine_starting("relay", again=False):
            pass
        with pytest.raises(errors.EngineCrashed), observing.engine_asked("relay", 1, "tune"):
            raise errors.EngineCrashed("it ended")
    request, attempt, stage = (one(spans, name) for name in ("POST /v1/jobs", "job", "stage tune"))
    assert f"{trace_of(request):x}" == "af7651916cd43dd8448eb211c80319c"
    asked = one(spans, "relay tune")
    assert is_child(attempt, request)
    assert is_child(stage, attempt)
    assert is_child(asked, stage)
    assert is_child(one(spans, "start relay"), stage)
    assert not asked.status.is_ok
    assert attempt.attributes is not None
    assert dict(attempt.attributes) == {"tunesmith.job_id": job_id, "tunesmith.attempt": 1}


def test_requests_are_named_by_their_route_and_fail_with_5xx(client: TestClient, spans: InMemorySpanExporter) -> None:
    client.get("/v1/jobs/j-none", headers={"X-Request-ID": "the-one"})
    client.put("/v1/models?name=x", content=b"crash")
    found, failed = one(spans, "GET /v1/jobs/{job_id}"), one(spans, "PUT /v1/models")
    assert found.attributes is not None
    assert found.attributes["tunesmith.status"] == 404
    assert found.attributes["tunesmith.request_id"] == "the-one"
    assert found.status.is_ok or found.status.description is None
    assert not failed.status.is_ok


def test_a_job_made_without_traces_starts_one_of_its_own(
    client: TestClient, service: Service, spans: InMemorySpanExporter
) -> None:
    tracing.install(None)
    job_id = submitted(client)
    with service.database.reading() as session:
        assert job_queries.trace_of(session, job_id) is None
        job = jobs.get(session, job_id)
    tracer = OpenTelemetryTracer("tests", spans)
    tracing.install(tracer)
    with observing.attempt(service.database, job):
        assert tracing.traceparent() is not None
    assert one(spans, "job").parent is None


@pytest.mark.contract
def test_nothing_is_imported_or_recorded_until_it_is_asked_for() -> None:
    code = (
        "import sys, api.app, worker.main, api.__main__\n"
        "from process import tracing\n"
        "with tracing.span('x') as span: span.set(a=1); span.rename('y'); span.fail('z')\n"
        "assert tracing.traceparent() is None\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'process.otel'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    # Where they are installed FastAPI looks for the API package by itself, and redis for the SDK's metrics.
    assert "process.otel" not in done.stdout
    assert "opentelemetry.sdk.trace" not in done.stdout
    assert "exporter" not in done.stdout


def test_where_it_is_asked_for_and_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "process.otel"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    tracing.set_up("tests", wanted=False)
    with pytest.raises(errors.ConfigurationError, match="opentelemetry is not installed"):
        tracing.set_up("tests", wanted=True)
    assert not tracing.is_on()
