"""What ``POST /v1/jobs:plan`` says is what the job then plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from domain.jobs import Tuner, TunerOptions
from domain.ports import Engine
from domain.stage_results import PlanResult
from domain.targets import Target, Toolchain
from domain.workers import Worker
from storage import models, workers
from tests.support.api.factories import AUTHORIZED, make_service
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO
from tuner.host import hardware
from tuner.host.inspection import Prepared, Rewritten
from worker import clock
from worker.engines import EngineOptions
from worker.pipeline import placing


@dataclass
class BenchPlanner:
    """The engines of the bench, as making a plan needs them."""

    bench: Bench
    seconds: float = 20.0

    def prepare(
        self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path, canceled: Callable[[], bool] | None = None
    ) -> Prepared:
        return self.bench.script.prepare(model, shapes, out, log=self.bench.home / "log", canceled=canceled)

    def rewrite(self, prepared: Path, lanes: int, out: Path, canceled: Callable[[], bool] | None = None) -> Rewritten:
        params = {"path": str(prepared), "lanes": lanes, "out_path": str(out)}
        engine = self.bench.script.start("onnx", EngineOptions(log=self.bench.home / "log"))
        return Rewritten.of(engine.request("rewrite", params, timeout=None), out)

    def start(self, name: str, folder: Path, canceled: Callable[[], bool]) -> Engine:
        return self.bench.script.start(
            name, EngineOptions(log=self.bench.home / "logs" / "plans.log", canceled=canceled)
        )


@pytest.fixture
def client(bench: Bench) -> Iterator[TestClient]:
    """Of an API over the bench's database, which knows one living worker like the bench's own."""
    service = make_service(bench.home, planner=BenchPlanner(bench))
    now, device = clock.now(), hardware.device()
    worker = Worker(
        id="host:1:1",
        hostname="host",
        pid=1,
        device=device,
        native_target=Target(text=placing.native_text(HELLO), threads=device.threads),
        toolchains=(Toolchain.of(HELLO),),
        current_job=None,
        started_at=now,
        last_seen_at=now,
    )
    with service.database.transaction() as session:
        workers.beat(session, worker)
    with TestClient(service.app, headers=AUTHORIZED) as client:
        yield client
    service.database.close()


def agree(bench: Bench, client: TestClient, content: bytes, budget: dict[str, Any], n_trial: int | None = None) -> int:
    """Plan a job, run it, compare; returns the trials that both planned."""
    options = TunerOptions(n_trial=n_trial)
    job_id = bench.job(**{"trials": None, **budget}, content=content, tuner=Tuner.AUTOTVM, tuner_options=options)
    with bench.database.reading() as session:
        model = models.get(session, bench.get(job_id).request.model_digest)
    request = {"model": model.id, "tuner": "autotvm", "budget": budget, "tuner_options": {"n_trial": n_trial}}
    answer = client.post("/v1/jobs:plan", json=request)
    assert answer.status_code == 200, answer.json()
    (told,) = answer.json()["engines"][0]["tuners"]
    bench.finish(job_id)
    found = bench.result(job_id, PlanResult)
    assert (told["tasks"], told["trials"]) == (found.tasks, found.trials_planned)
    assert told["tasks_covered"] + told["tasks_left_out"] == found.covered
    assert told["trials_on_record"] == found.trials_on_record
    assert told["records_passed_over"] == found.passed_over
    return int(told["trials"])


def test_a_job_plans_what_its_plan_said(bench: Bench, client: TestClient) -> None:
    assert agree(bench, client, b"one", {"trials": 32}) == 32
    assert agree(bench, client, b"one", {"trials": 32}) == 0
    assert agree(bench, client, b"one", {"trials": 48}) == 16
    assert agree(bench, client, b"one", {"trials": 8}) == 0
    assert agree(bench, client, b"one", {"trials": 100}, n_trial=40) > 0
    bench.script.tasks = ("conv", "other")
    assert 0 < agree(bench, client, b"two", {"trials": 32}) < 32


def test_a_job_extracts_what_its_plan_extracted_of_the_rewritten_model(bench: Bench, client: TestClient) -> None:
    bench.script.rewritings = {"aligned": 3}
    assert agree(bench, client, b"one", {"trials": 32}) == 32
    (extracted,) = bench.script.asked("extract")
    assert (Path(extracted["model"]).name, extracted["rewrite"]) == ("rewritten-16.onnx", True)
    asked = len(bench.script.requests)
    assert agree(bench, client, b"one", {"trials": 48}) == 16
    assert {method for method, params in bench.script.requests[asked:]} >= {"compile", "tune"}
    assert len(bench.script.asked("extract")) == 1


def test_a_budget_of_seconds_is_planned_alike(bench: Bench, client: TestClient) -> None:
    bench.script.seconds_per_trial = 0.01
    assert agree(bench, client, b"one", {"seconds": 0.3}) > 0
    assert agree(bench, client, b"one", {"seconds": 0.3}) == 0
    assert agree(bench, client, b"one", {"seconds": 0.6}) > 0


def test_stale_records_are_counted_alike(bench: Bench, client: TestClient) -> None:
    bench.script.hellos = {
        **bench.script.hellos, "relay": {**HELLO, "toolchain": {"engine": "relay", "tvm": "0.18.0", "llvm": "22"}}
    }  # fmt: skip
    older = bench.job(trials=16, content=b"one", tuner=Tuner.AUTOTVM)
    bench.runtime().run_job(older)
    bench.script.hellos = {**bench.script.hellos, "relay": HELLO}
    assert agree(bench, client, b"one", {"trials": 16}) == 16
    assert bench.records(older)
