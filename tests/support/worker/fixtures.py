"""A worker's runtime over a real database and scripted engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from domain.artifacts import Artifact, Report
from domain.jobs import Budget, EventKind, Failure, Job, JobEvent, JobRequest, JobState
from domain.models import ModelFacts
from domain.records import Record
from domain.stage_results import StageResult
from domain.tokens import LOCAL_OWNER
from domain.tuning_tasks import TuningTask
from process import tracing
from process.otel import OpenTelemetryTracer
from storage import artifacts, events, jobs, models, queue, records, stages, tuning_tasks
from storage.blobs.local import LocalBlobStore
from storage.database import Database
from tests.support.storage.empty import put_empty_database
from tests.support.worker.scripted import SPEC, Script
from tests.support.worker.team import Team, gathered
from tuner.results import conditions, timing
from worker import clock
from worker.runtime import Runtime
from worker.settings import WorkerSettings

FACTS = ModelFacts(inputs=(SPEC,), outputs=(SPEC,), opset=13, ir_version=8, operators={"Conv": 1}, parameters=10)


R = TypeVar("R", bound=StageResult)


class OneJob(Runtime):
    """A worker that is told which job to claim, whatever else waits."""

    def claim(self, job_id: str) -> Job | None:
        with self.database.transaction() as session:
            return self._claimed(session, job_id, self._rules())

    def run_job(self, job_id: str) -> None:
        job = None if self.shutdown.is_set() else self.claim(job_id)
        if job is not None:
            self._run(job)


@dataclass(kw_only=True)
class Stored:
    """What a service's database knows of its jobs."""

    database: Database

    def get(self, job_id: str) -> Job:
        with self.database.reading() as session:
            return jobs.get(session, job_id)

    def artifact(self, job_id: str) -> Artifact:
        with self.database.reading() as session:
            found = artifacts.of_job(session, job_id)
        assert found is not None, self.get(job_id).failure
        return found

    def events(self, job_id: str, kind: EventKind | None = None) -> list[JobEvent]:
        with self.database.reading() as session:
            found = events.after(session, job_id, 0, 10_000)
        return [event for event in found if kind is None or event.kind is kind]

    def notes(self, job_id: str) -> list[str]:
        return [event.data["message"] for event in self.events(job_id, EventKind.NOTE)]

    def records(self, job_id: str) -> list[Record]:
        with self.database.reading() as session:
            return records.of_job(session, job_id)

    def by_worker(self, job_id: str) -> Counter[str]:
        """Trials that each worker stored."""
        return Counter(record.worker_id for record in self.records(job_id))

    def bury(self, job_id: str) -> None:
        """The lease of the worker that was killed is over."""
        lease = self.get(job_id).lease
        assert lease is not None
        with self.database.transaction() as session:
            assert jobs.expire_dead(session, worker_ids=[lease.worker_id], now=clock.now()) == 1


@dataclass(kw_only=True)
class Bench(Stored):
    """A service without API and broker: jobs are made and run by hand."""

    home: Path
    blobs: LocalBlobStore
    script: Script = field(default_factory=Script)
    options: dict[str, Any] = field(default_factory=dict)
    workers: int = 0

    def runtime(self, **options: Any) -> OneJob:
        """Another worker process, as it were."""
        self.workers += 1
        settings = WorkerSettings(
            home=self.home,
            cancel_poll_seconds=0.03,
            **{
                "lease_seconds": 30.0,
                "attempt_pause_seconds": 0,
                "benchmark_seconds": 0.001,
                **self.options,
                **options,
            },
        )
        return OneJob(
            database=self.database,
            blobs=self.blobs,
            engines=self.script,
            settings=settings,
            id=f"elsewhere:{self.workers}:1",
        )

    def job(
        self,
        *,
        trials: int | None = 32,
        seconds: float | None = None,
        total_seconds: float | None = None,
        content: bytes = b"a model",
        facts: ModelFacts = FACTS,
        owner: str = LOCAL_OWNER,
        **request: Any,
    ) -> str:
        blob = self.blobs.put([content])
        now = clock.now()
        with self.database.transaction() as session:
            models.add(session, digest=blob.digest, name="m.onnx", size_bytes=blob.size_bytes, facts=facts, now=now)
            budget = Budget(trials=trials, seconds=seconds, total_seconds=total_seconds)
            wanted = JobRequest(model_digest=blob.digest, budget=budget, **request)
            return jobs.create(session, wanted, now=now, owner=owner).id

    def run(self, **request: Any) -> str:
        """A job that a worker has run; takes what ``job`` takes."""
        job_id = self.job(**request)
        self.runtime().run_job(job_id)
        return job_id

    def finish(self, job_id: str) -> None:
        """Have another worker run the job, which must succeed."""
        self.runtime().run_job(job_id)
        assert self.get(job_id).state is JobState.SUCCEEDED, self.get(job_id).failure

    def succeed(self, **request: Any) -> str:
        """As ``run``, of a job that must succeed."""
        job_id = self.job(**request)
        self.finish(job_id)
        return job_id

    def take(self, job_id: str, worker_id: str, *, lease_seconds: float = 60.0) -> Job:
        """Have a worker that is not the bench's claim the job."""
        with self.database.transaction() as session:
            now = clock.now()
            job = jobs.claim(session, job_id, worker_id=worker_id, now=now, lease_seconds=lease_seconds, max_attempts=9)
        assert job is not None
        return job

    def kill_at(self, trial: int) -> None:
        """Kill the worker when this trial is spooled and not yet stored."""

        def die(count: int) -> None:
            if count == trial:
                raise Killed

        self.script.on_trial = die

    def lose_worker(self, job_id: str) -> None:
        """Run the job by a worker that is killed meanwhile, and whose lease then ends."""
        with pytest.raises(Killed):
            self.runtime().run_job(job_id)
        self.bury(job_id)

    def failure(self, job_id: str) -> Failure:
        """Of a job that has to have failed."""
        job = self.get(job_id)
        assert job.state is JobState.FAILED
        assert job.failure is not None
        return job.failure

    def report(self, job_id: str) -> Report:
        return self.artifact(job_id).report

    def result(self, job_id: str, kind: type[R]) -> R:
        with self.database.reading() as session:
            found = stages.result(session, job_id, kind)
        assert found is not None
        return found

    def tasks(self, job_id: str) -> list[TuningTask]:
        with self.database.reading() as session:
            return tuning_tasks.of_job(session, job_id)

    def cancel(self, job_id: str) -> None:
        with self.database.transaction() as session:
            jobs.request_cancel(session, job_id, now=clock.now())

    def waiting(self, seconds: float = 0.0) -> list[str]:
        """The jobs that may be claimed in so many seconds, in that order."""
        at = clock.now() + timedelta(seconds=seconds)
        with self.database.reading() as session:
            return list(queue.in_order(session, queue.Rules(now=at, judging=at, max_attempts=5)))

    def work(self, job_id: str) -> Path:
        return self.home / "work" / job_id


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("TUNESMITH_LOCK_FOLDER", str(tmp_path / "locks"))
    # Between runs of scripted engines no core has to cool down.
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)
    # And a machine that other tests load is quiet enough for them.
    monkeypatch.setattr(conditions, "calibration", lambda: 1e-3)
    home = tmp_path / "home"
    home.mkdir()
    database = Database(put_empty_database(home))
    yield Bench(home=home, database=database, blobs=LocalBlobStore(home / "blobs"))
    database.close()


@pytest.fixture
def team(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Team]]:
    """Makes teams of so many helpers."""
    with gathered(bench, monkeypatch) as make:
        yield make


class Killed(BaseException):
    """Stands for ``kill -9``: nothing catches it, and nothing is tidied up."""


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.install(OpenTelemetryTracer("tests", exporter))
    yield exporter
    tracing.close()
    tracing.install(None)
