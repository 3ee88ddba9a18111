"""API, worker and real engines over one database, in one process: what a job does is left to the code that does it
everywhere, and a test may hear, and end, every engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from pydantic import SecretStr

from api.app import create_app
from api.settings import ApiSettings
from domain.jobs import JobState
from domain.ports import Engine
from domain.workers import Worker
from storage import workers
from storage.blobs.local import LocalBlobStore
from storage.database import Database, migrate
from tests.support.api.factories import AUTHORIZED, TOKEN, FakePublisher
from tests.support.tuner.engines.fixtures import home
from tests.support.worker.fixtures import OneJob, Stored
from tests.support.worker.hearing import HeardEngine
from tuner.host import catalogue, environments
from tuner.host.extraction import InstalledPlanner
from tuner.host.inspection import Inspector
from tuner.host.record_reading import RecordReader
from tuner.host.session import EngineSession
from tuner.host.settings import TunerSettings
from tuner.search import operators
from worker.engines import EngineOptions, InstalledEngines
from worker.settings import WorkerSettings

QUICK = {"number": 1, "repeat": 1, "min_repeat_ms": 1}
"""How trials are measured whose times matter to nobody."""

Hear = Callable[[EngineSession, str, dict[str, Any]], None]


@dataclass(kw_only=True)
class Service(Stored):
    home: Path
    blobs: LocalBlobStore
    client: TestClient
    engines: InstalledEngines
    hear: Hear = lambda _engine, _kind, _data: None
    """Called with every event of every engine, before the pipeline is."""
    _models: dict[bytes, str] = field(default_factory=dict)

    def upload(self, content: bytes) -> str:
        """The model's id."""
        if content not in self._models:
            answer = self.client.put("/v1/models", params={"name": "tiny"}, content=content)
            assert answer.status_code in (200, 201), answer.text
            self._models[content] = answer.json()["id"]
        return self._models[content]

    def submit(self, content: bytes, *, trials: int = 4, **request: Any) -> str:
        """The queued job's id."""
        body = {"model": self.upload(content), "threads": 1, **request}
        if body.get("runner") != "none":
            body = {"budget": {"trials": trials}, "measure": QUICK, **body}
        answer = self.client.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def runtime(self) -> OneJob:
        """Another worker."""
        settings = WorkerSettings(home=self.home, cancel_poll_seconds=0.1, benchmark_seconds=0.001)
        return OneJob(database=self.database, blobs=self.blobs, engines=self, settings=settings)

    @cached_property
    def worker(self) -> Worker:
        """As the fleet sees it from now on."""
        found = self.runtime().describe()
        with self.database.transaction() as session:
            workers.beat(session, found)
        return found

    def work(self, job_id: str) -> dict[str, Any]:
        """The job as the API tells it, once a worker is done with it."""
        self.runtime().run_job(job_id)
        return self.job(job_id)

    def finish(self, content: bytes, **request: Any) -> dict[str, Any]:
        """A job that has to succeed."""
        job = self.work(self.submit(content, **request))
        assert job["state"] == JobState.SUCCEEDED, (job["failure"], self.notes(job["id"]))
        return job

    def cache_bytecode(self, name: str) -> None:
        """The installation did."""

    def start(self, name: str, given: EngineOptions) -> Engine:
        session = self.engines.start(name, given)
        assert isinstance(session, EngineSession)
        return HeardEngine(session, lambda kind, data: self.hear(session, kind, data))

    def prepare(self, *given: Any, **named: Any) -> Any:
        return self.engines.prepare(*given, **named)

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/v1/jobs/{job_id}").json()
        return found

    def report(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/v1/jobs/{job_id}/report").json()
        return found

    def download(self, job_id: str, to: Path) -> Path:
        to.write_bytes(self.client.get(f"/v1/artifacts/{self.artifact(job_id).id}/download").content)
        return to


def kill(engine: EngineSession) -> None:
    os.kill(engine._process.pid, signal.SIGKILL)


def interpreters() -> dict[str, str]:
    """Settings that name the engines which the tests were given."""
    outer = home()
    return {
        environments.variable(spec): str(environments.interpreter(spec, outer)) for spec in catalogue.ENGINES.values()
    }


@contextmanager
def serving(home: Path) -> Iterator[Service]:
    """The settings of ``interpreters`` are to be in the environment."""
    database = Database(f"sqlite:///{home / 'db.sqlite3'}")
    migrate(database)
    blobs = LocalBlobStore(home / "blobs")
    spec = catalogue.get("onnx")
    inspector = Inspector(spec=spec, python=environments.interpreter(spec, home), home=home)
    app = create_app(
        ApiSettings(token=SecretStr(TOKEN)),
        database=database,
        blobs=blobs,
        publisher=FakePublisher(),
        inspect=lambda path, *_format: inspector.inspect(path),
        inspect_rows=lambda path, _: inspector.inspect_rows(path),
        make_operator=lambda operator, path: operators.make_model(inspector, operator, path),
        read_records=RecordReader(home=home, settings=TunerSettings()).read,
        planner=InstalledPlanner(home=home, settings=TunerSettings()),
        logs=home / "logs" / "jobs",
    )
    engines = InstalledEngines(home=home, settings=TunerSettings())
    with TestClient(app, headers=AUTHORIZED) as client:
        yield Service(home=home, database=database, blobs=blobs, client=client, engines=engines)
    database.close()
