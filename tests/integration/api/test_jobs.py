from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from domain.jobs import Budget, Failure, JobRequest
from domain.targets import Device, Toolchain
from storage import jobs, models
from tests.support.api.factories import SHAPES, Service
from tests.support.api.scripted import ScriptedWorker


def test_a_job_is_stored_then_a_worker_is_woken(client: TestClient, service: Service, model: str) -> None:
    request = {"model": model, "input_shapes": SHAPES, "priority": 2, "labels": {"team": "ocr"}, "threads": 1}
    answer = client.post("/v1/jobs", json=request)
    assert answer.status_code == 202
    job = answer.json()
    assert (service.publisher.rung, job["priority"]) == (1, 2)
    assert (job["state"], job["model"], job["model_name"], job["target"]) == ("queued", model, "net", "native")
    assert (job["labels"], job["threads"], job["input_shapes"]) == ({"team": "ocr"}, 1, SHAPES)
    assert job["budget"] == {"trials": None, "seconds": 600.0, "total_seconds": 4200.0}


def test_a_lost_message_loses_no_job(client: TestClient, service: Service, model: str) -> None:
    service.publisher.down = True
    answer = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES})
    assert answer.status_code == 202
    assert client.get(f"/v1/jobs/{answer.json()['id']}").json()["state"] == "queued"


def test_options_reach_the_worker(client: TestClient, service: Service, model: str) -> None:
    answer = client.post(
        "/v1/jobs",
        json={
            "model": model,
            "input_shapes": SHAPES,
            "target": "llvm   -mcpu=znver3",
            "tuner": "autotvm",
            "budget": {"trials": 64, "seconds": 30},
            "measure": {"number": 4, "timeout": 3.5},
            "tuner_options": {"early_stopping": 10},
        },
    )
    with service.database.reading() as session:
        request = jobs.get(session, answer.json()["id"]).request
    assert request.target == "llvm -mcpu=znver3"
    assert (request.budget.trials, request.budget.seconds) == (64, 30)
    assert (request.measure.number, request.measure.timeout, request.measure.repeat) == (4, 3.5, 3)
    assert request.tuner_options.early_stopping == 10


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"target": "llvm; rm -rf"}, 400, "unknown_target"),
        ({"budget": {"trials": -5}}, 400, "invalid_budget"),
        ({"budget": {"seconds": -1}}, 400, "invalid_budget"),
        ({"budget": {"trials": 10**30}}, 400, "invalid_budget"),
        ({"budget": {}}, 400, "invalid_budget"),
        ({"budget": {"total_seconds": 0}}, 400, "invalid_budget"),
        ({"budget": {"trials": 8, "total_seconds": -60}}, 400, "invalid_budget"),
        ({"budget": {"trials": "many"}}, 400, "invalid_request"),
        ({"input_shapes": {"x": [1, 3, 8]}}, 400, "shape_mismatch"),
        ({"input_shapes": {"x": [1, 4, 8, 8]}}, 400, "shape_mismatch"),
        ({"input_shapes": {"x": [0, 3, 8, 8]}}, 400, "shape_mismatch"),
        ({"input_shapes": {"x": [2**40, 3, 8, 8]}}, 400, "shape_mismatch"),
        ({"input_shapes": {"x": [2**30, 3, 8, 8]}}, 400, "shape_mismatch"),
        ({"priority": 10}, 400, "invalid_request"),
        ({"threads": 0}, 400, "invalid_request"),
        ({"measure": {"repeat": 0}}, 400, "invalid_request"),
    ],
)
def test_what_is_wrong_with_a_request(
    lasting: TestClient, lasting_model: str, changes: dict[str, Any], status: int, code: str
) -> None:
    answer = lasting.post("/v1/jobs", json={"model": lasting_model, "input_shapes": SHAPES, **changes})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["status"]) == (status, code, status)
    assert problem["detail"]
    assert problem["hint"]
    assert lasting.get("/v1/jobs").json()["jobs"] == []


def test_the_inputs_of_the_model_are_named(client: TestClient, model: str) -> None:
    problem = client.post("/v1/jobs", json={"model": model, "input_shapes": {"X": [1]}}).json()
    assert problem["details"]["inputs"] == ["x"]


def test_open_dimensions_are_named_with_an_example(client: TestClient, model: str) -> None:
    problem = client.post("/v1/jobs", json={"model": model}).json()
    assert problem["details"]["dimensions"] == [
        {"input": "x", "axis": 0, "symbol": "batch"},
        {"input": "x", "axis": 2, "symbol": None},
    ]
    assert "--input-shape x:N,3,M,8" in problem["hint"]


def test_jobs_are_listed_by_state_model_and_label(client: TestClient, service: Service, model: str) -> None:
    other = client.put("/v1/models", content=b"static other").json()
    one = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, "labels": {"a": "b=c"}}).json()["id"]
    two = client.post("/v1/jobs", json={"model": other["id"]}).json()["id"]
    client.post(f"/v1/jobs/{two}:cancel")

    def listed(**params: str) -> list[str]:
        return [job["id"] for job in client.get("/v1/jobs", params=params).json()["jobs"]]

    assert listed() == [two, one]
    assert listed(state="canceled") == [two]
    assert listed(model=model) == [one]
    assert listed(model=other["digest"]) == [two]
    assert listed(label="a=b=c") == [one]
    assert listed(label="a=x") == []
    first = client.get("/v1/jobs?limit=1").json()
    assert client.get("/v1/jobs", params={"page_token": first["next_page_token"]}).json()["jobs"][0]["id"] == one


def test_a_job_tells_how_far_it_is(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service, trials=3).begin(job)
    found = client.get(f"/v1/jobs/{job}").json()
    assert (found["state"], found["stage"]) == ("running", "tune")
    assert (found["trials_done"], found["trials_planned"]) == (12, 12)
    assert [stage["stage"] for stage in found["timeline"]] == ["import", "baseline", "plan"]
    assert found["failures"] == {"run_timeout": 4}
    assert found["planned"] == {
        "tuner": "autotvm",
        "tasks": 4,
        "tasks_covered": 1,
        "trials_on_record": 32,
        "records_passed_over": {"toolchain": 5},
        "elsewhere": {},
    }
    assert found["choice"] == ["relax is slower untuned.", "autotvm promises most."]
    assert found["placement"]["target"] == "llvm -mcpu=znver3 -num-cores=2"
    task = found["tasks"][0]
    assert (task["trials_done"], task["trials_planned"], task["failures"]) == (3, 3, {"run_timeout": 1})
    assert task["best_gflops"] == pytest.approx(30.0)
    assert found["run_seconds"] > 0


def test_a_queued_job_is_canceled_at_once_and_only_once(client: TestClient, job: str) -> None:
    answer = client.post(f"/v1/jobs/{job}:cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "canceled")
    again = client.post(f"/v1/jobs/{job}:cancel")
    assert (again.status_code, again.json()["code"]) == (409, "job_already_finished")


def test_a_running_job_is_canceling_until_its_worker_stopped(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service).claim(job)
    for _ in range(2):
        assert client.post(f"/v1/jobs/{job}:cancel").json()["state"] == "canceling"


def test_a_retry_is_a_new_job_for_the_same_request(client: TestClient, service: Service, job: str) -> None:
    early = client.post(f"/v1/jobs/{job}:retry")
    assert (early.status_code, early.json()["code"]) == (409, "job_not_finished")
    failure = Failure(code="engine_crashed", message="it crashed", hint="look", details={"signal": "SIGSEGV"})
    ScriptedWorker(service).fail(job, failure)
    failed = client.get(f"/v1/jobs/{job}").json()
    assert failed["failure"] == {
        "code": "engine_crashed",
        "message": "it crashed",
        "hint": "look",
        "details": {"signal": "SIGSEGV"},
    }
    new = client.post(f"/v1/jobs/{job}:retry").json()
    assert new["id"] != job
    assert new["input_shapes"] == failed["input_shapes"]
    assert (service.publisher.rung, new["priority"]) == (2, 5)


def test_queued_jobs_say_their_place(client: TestClient, service: Service, model: str) -> None:
    def ask(**request: object) -> str:
        body = {"model": model, "input_shapes": SHAPES, **request}
        return str(client.post("/v1/jobs", json=body).json()["id"])

    def place(job_id: str) -> tuple[int | None, list[str]]:
        found = client.get(f"/v1/jobs/{job_id}").json()
        return found["queue_position"], found["queued_before"]

    first = ask()
    assert place(first) == (None, []), "what it waits for is a worker, not its turn"
    ScriptedWorker(service).beat()
    gpu, second, urgent = ask(target="cuda -arch=sm_90"), ask(), ask(priority=1)
    assert [place(each) for each in (urgent, first, gpu, second)] == [
        (1, []), (2, [urgent]), (None, []), (3, [urgent, first]),
    ]  # fmt: skip
    listed = {job["id"]: job["queue_position"] for job in client.get("/v1/jobs").json()["jobs"]}
    assert listed == {urgent: 1, first: 2, gpu: None, second: 3}
    ScriptedWorker(service).claim(urgent)
    assert [place(each) for each in (urgent, first, second)] == [(None, []), (1, []), (2, [first])]


def test_jobs_of_others_are_counted_and_not_named(client: TestClient, service: Service, model: str) -> None:
    ScriptedWorker(service).beat()
    with service.database.transaction() as session:
        request = JobRequest(model_digest=models.get(session, model).digest, budget=Budget(trials=1))
        jobs.create(session, request, now=datetime(2026, 1, 1, tzinfo=UTC), owner="ann")
    body = {"model": model, "input_shapes": SHAPES}
    made = client.post("/v1/jobs", json=body).json()
    assert (made["queue_position"], made["queued_before"]) == (2, [])


def test_a_queued_job_says_what_no_living_worker_has(client: TestClient, service: Service, model: str) -> None:
    def ask(**request: object) -> dict[str, object]:
        body = {"model": model, "input_shapes": SHAPES, **request}
        made: dict[str, object] = client.post("/v1/jobs", json=body).json()
        assert client.get(f"/v1/jobs/{made['id']}").json()["waits_for"] == made["waits_for"]
        return made

    assert ask()["waits_for"] == "a worker; no worker is alive"
    ScriptedWorker(service).beat()
    assert ask()["waits_for"] is None
    gpu = {"target": "cuda -arch=sm_90"}
    assert ask(**gpu)["waits_for"] == "a worker with a GPU for 'cuda -arch=sm_90': the live workers have none"
    building = ask(**gpu, runner="none")
    assert building["waits_for"] == "a worker with the relax engine: workers for this target have relay"
    assert [(one["code"], one["details"]) for one in building["warnings"]] == [("no_worker", {"missing": "engine"})]
    relax = Toolchain(engine="relax", tvm="0.27.0", llvm="22")
    ScriptedWorker(service).beat(toolchains=(relax,))
    assert ask(**gpu, runner="none")["warnings"] == [], "building needs no GPU"
    ScriptedWorker(service).beat(
        accelerators=(Device(key="cuda/a100/sm_80", name="NVIDIA A100", threads=2),), toolchains=(relax,)
    )
    assert "NVIDIA A100" in str(ask(**gpu)["waits_for"])
    assert "accept only CUDA jobs" in str(ask()["waits_for"])
    job = ask(target="cuda -arch=sm_80")
    assert job["waits_for"] is None
    client.post(f"/v1/jobs/{job['id']}:cancel")
    assert client.get(f"/v1/jobs/{job['id']}").json()["waits_for"] is None
