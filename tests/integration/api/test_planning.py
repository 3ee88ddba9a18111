from __future__ import annotations

import contextlib
import http.client
import threading
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from domain.jobs import Tuner
from domain.stage_results import SearchedStrategy, TuneResult
from domain.targets import Device, Target
from storage import stages, workloads
from tests.support import stage_results
from tests.support.api.factories import AUTHORIZED, SHAPES, TOOLCHAINS, Service
from tests.support.api.live import serving
from tests.support.api.scripted import DEVICE, ScriptedWorker
from tests.support.waiting import until

BOTH = tuple(TOOLCHAINS.values())
FORM = {"symbol:batch": "1", "axis:x:2": "8", "target": "native", "tuner": "auto", "budget": "600"}
GPU = Device(key="cuda/NVIDIA-H200/sm_90", name="NVIDIA H200", threads=1)


@pytest.fixture
def worker(service: Service) -> ScriptedWorker:
    made = ScriptedWorker(service)
    made.beat(toolchains=BOTH)
    return made


def plan(client: TestClient, model: str, **request: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs:plan", json={"model": model, "input_shapes": SHAPES, **request})
    assert answer.status_code == 200, answer.json()
    found: dict[str, Any] = answer.json()
    return found


def tuner(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for engine in found["engines"] for one in engine["tuners"] if one["tuner"] == name)


@pytest.mark.usefixtures("worker")
def test_a_plan_tells_every_engine_and_queues_nothing(client: TestClient, service: Service, model: str) -> None:
    found = plan(client, model, budget={"trials": 40})
    assert (found["possible"], found["considered"]) == (True, ["autotvm", "ansor", "metaschedule"])
    assert (found["target"], found["device_key"]) == ("llvm -mcpu=znver3 -num-cores=2", DEVICE.key)
    relay, relax = found["engines"]
    assert (relay["name"], relay["imports"], relay["unsupported_operators"]) == ("relay", True, {})
    assert relax["toolchain"] == "relax/tvm-0.27.0/llvm-22.1.8"
    counts = {one["tuner"]: (one["tasks"], one["trials"]) for engine in (relay, relax) for one in engine["tuners"]}
    assert counts == {"autotvm": (2, 40), "ansor": (1, 40), "metaschedule": (1, 40)}
    autotvm = tuner(found, "autotvm")
    assert (autotvm["tasks_covered"], autotvm["trials_on_record"], autotvm["records_passed_over"]) == (0, 0, {})
    assert (autotvm["measured_rate"], autotvm["minutes"]) == (False, pytest.approx(40 * 0.5 / 60))
    assert found["notes"] == []
    assert client.get("/v1/jobs").json()["jobs"] == []
    assert service.publisher.rung == 0


@pytest.mark.usefixtures("worker")
def test_the_second_plan_asks_no_engine(client: TestClient, service: Service, model: str) -> None:
    first = plan(client, model)
    assert plan(client, model) == first
    assert (service.planner.started, service.planner.prepared) == (["relay", "relax"], 1)
    assert service.planner.rewritten == 1, "for all engines and tuners"
    with service.database.reading() as session:
        known = workloads.definitions(session, ["ansor-fused_conv2d", "autotvm-conv2d"])
    assert known == {"ansor-fused_conv2d": "definition of fused_conv2d"}
    plan(client, model, threads=1)
    assert service.planner.prepared == 2, "another thread count is another target"


@pytest.mark.usefixtures("worker")
def test_what_others_measured_is_covered_or_passed_over(client: TestClient, service: Service, model: str) -> None:
    job = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES}).json()["id"]
    measured = ScriptedWorker(service, trials=12)
    measured.names = ["autotvm-conv2d", "autotvm-dense", "x", "y"]
    lease = measured.begin(job)
    assert lease is not None
    now = datetime.now(UTC)
    searched = SearchedStrategy(tuner=Tuner.AUTOTVM, trials=48, seconds=36.0, estimate=None, verdict="")
    result = stage_results.made(TuneResult, strategies=(searched,), helpers={})
    with service.database.transaction() as session:
        stages.save(session, job, lease, result, started_at=now, finished_at=now)
    measured.finish(job, lease)
    autotvm = tuner(plan(client, model, tuner="autotvm", tuner_options={"n_trial": 12}), "autotvm")
    assert (autotvm["tasks"], autotvm["tasks_covered"], autotvm["trials"]) == (2, 2, 0)
    assert (autotvm["trials_on_record"], autotvm["minutes"], autotvm["measured_rate"]) == (24, 0.0, True)
    assert autotvm["seconds_a_trial"] == pytest.approx(0.75)
    more = tuner(plan(client, model, tuner="autotvm", tuner_options={"n_trial": 20}), "autotvm")
    assert (more["tasks_covered"], more["trials"]) == (0, 16)
    other = tuner(plan(client, model, tuner="autotvm", threads=1), "autotvm")
    assert (other["trials_on_record"], other["records_passed_over"]) == (0, {"device": 24})


@pytest.mark.usefixtures("worker")
def test_what_a_budget_does_not_reach_for_is_not_covered(client: TestClient, model: str) -> None:
    found = tuner(plan(client, model, tuner="autotvm", budget={"trials": 8}), "autotvm")
    assert (found["tasks"], found["tasks_covered"], found["tasks_left_out"], found["trials"]) == (2, 0, 1, 8)


@pytest.mark.usefixtures("worker")
def test_operators_that_an_engine_lacks_are_named(client: TestClient, service: Service, model: str) -> None:
    service.planner.unsupported = {"relay": {"GridSample": 2, "Foo": 1}}
    found = plan(client, model)
    relay, relax = found["engines"]
    assert (found["possible"], relay["imports"], relax["imports"]) == (True, False, True)
    assert relay["unsupported_operators"] == {"GridSample": 2, "Foo": 1}
    assert (relay["failure"]["code"], relay["tuners"]) == ("unsupported_operators", [])
    service.planner.unsupported["relax"] = {"Foo": 1}
    nowhere = plan(client, model, threads=1)
    assert nowhere["possible"] is False
    assert [engine["failure"]["code"] for engine in nowhere["engines"]] == ["unsupported_operators"] * 2


@pytest.mark.usefixtures("worker")
def test_engines_that_are_not_installed(client: TestClient, service: Service, model: str) -> None:
    service.planner.missing = {"relax"}
    found = plan(client, model)
    assert (found["possible"], found["engines"][1]["imports"]) == (True, None)
    assert found["engines"][1]["failure"]["code"] == "engine_not_installed"
    for missing in ({"relay", "relax"}, {"onnx"}):
        service.planner.missing = missing
        answer = client.post("/v1/jobs:plan", json={"model": model, "input_shapes": SHAPES, "threads": 1})
        assert (answer.status_code, answer.json()["code"]) == (503, "engine_not_installed")
        assert answer.json()["hint"]


@pytest.mark.usefixtures("worker")
def test_a_tuner_that_refuses(client: TestClient, service: Service, model: str) -> None:
    service.planner.refused = {"ansor": "invalid_option"}
    relay = plan(client, model)["engines"][0]
    assert [one["tuner"] for one in relay["tuners"]] == ["autotvm"]
    assert relay["refusals"]["ansor"]["code"] == "invalid_option"
    only = plan(client, model, tuner="ansor", threads=1)
    assert (only["possible"], only["engines"][0]["imports"]) == (False, True)


@pytest.mark.usefixtures("worker")
def test_a_feature_that_no_engine_knows_is_refused(client: TestClient, service: Service, model: str) -> None:
    service.planner.refused = dict.fromkeys(["autotvm", "ansor", "metaschedule"], "unknown_target")
    request = {"model": model, "input_shapes": SHAPES, "target": "llvm -mattr=+avx77"}
    answer = client.post("/v1/jobs:plan", json=request)
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_target")
    assert answer.json()["hint"] == "Ask for something else."


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs:plan"])
def test_a_cpu_that_llvm_does_not_know_is_refused_at_once(
    client: TestClient, service: Service, model: str, path: str
) -> None:
    def ask(target: str) -> Any:
        return client.post(path, json={"model": model, "input_shapes": SHAPES, "target": target})

    for target in ("llvm -mcpu=znver33", "llvm -mtriple=x86_64-linux-gnu -mcpu=znver33"):
        answer = ask(target)
        assert (answer.status_code, answer.json()["code"]) == (400, "unknown_target")
        assert "'znver3'" in answer.json()["hint"]
        assert "znver3" in answer.json()["details"]["near_matches"]
    assert client.get("/v1/jobs").json()["jobs"] == []
    assert service.planner.started == [], "no engine was asked"
    assert ask("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3").json()["code"] == "unknown_target"
    assert ask("llvm -mcpu=znver3").is_success
    ScriptedWorker(service).beat(foreign_cpus=("znver33",))
    assert ask("llvm -mcpu=znver33").is_success, "the LLVM of a worker knows it"


def test_without_a_worker_a_plan_tells_what_imports(client: TestClient, model: str) -> None:
    found = plan(client, model)
    assert (found["possible"], found["worker"], found["device_key"]) == (True, None, None)
    assert [engine["imports"] for engine in found["engines"]] == [True, True]
    assert [engine["tuners"] for engine in found["engines"]] == [[], []]
    assert found["notes"][0].startswith("The job would wait for a worker; no worker is alive.")


def test_a_gpus_job_is_planned_for_a_worker_that_has_one(client: TestClient, service: Service, model: str) -> None:
    ScriptedWorker(service).beat(toolchains=BOTH)
    assert plan(client, model, target="cuda -arch=sm_90")["worker"] is None
    gpu = Target(text="cuda -arch=sm_90", threads=2)
    ScriptedWorker(service).beat(id="gpu:1:1", toolchains=BOTH, accelerators=(GPU,), native_target=gpu)
    found = plan(client, model, target="cuda -arch=sm_90")
    assert (found["worker"], found["device_key"], found["considered"]) == ("gpu:1:1", GPU.key, ["metaschedule"])
    assert plan(client, model, target="cuda -arch=sm_80")["worker"] is None
    assert plan(client, model)["worker"] == "host:1:1", "a worker that has a GPU takes CUDA jobs only"


@pytest.mark.usefixtures("worker")
def test_a_plan_is_for_the_device_that_the_job_measures_on(client: TestClient, model: str) -> None:
    arm = "llvm -mtriple=aarch64-linux-gnu"
    rpc = {"runner": "rpc", "rpc": {"tracker": "boards:9190", "key": "pi4"}, "target": arm, "threads": 4}
    boards = plan(client, model, **rpc)
    assert (boards["device_key"], boards["target"]) == ("rpc/pi4/t4", f"{arm} -num-cores=4")
    unproven = plan(client, model, target=arm, runner="none", threads=4)
    assert (unproven["device_key"], tuner(unproven, "ansor")["trials"]) == ("none/t4", 0)
    recorded = plan(client, model, target=arm, runner="none", device="rpc/pi4/t4")
    assert (recorded["device_key"], recorded["target"]) == ("rpc/pi4/t4", f"{arm} -num-cores=4")


def test_notes_tell_of_engines_that_differ(client: TestClient, service: Service, model: str) -> None:
    ScriptedWorker(service).beat()
    notes = plan(client, model)["notes"]
    assert notes == ["Worker host:1:1 does not run the relax engine."]


@pytest.mark.usefixtures("worker")
def test_plans_are_made_one_at_a_time(client: TestClient, service: Service, model: str) -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert end.wait(10)

    service.planner.working = work
    first = threading.Thread(target=plan, args=[client, model])
    first.start()
    assert begun.wait(10)
    answer = client.post("/v1/jobs:plan", json={"model": model, "input_shapes": SHAPES, "threads": 1})
    end.set()
    first.join(timeout=10)
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "planner_busy", "10")
    assert plan(client, model)["possible"] is True


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("slow", [{"relay": 60.0, "relax": 60.0}, {"onnx": 60.0}])
def test_a_plan_has_one_limit_of_time(client: TestClient, service: Service, model: str, slow: dict[str, float]) -> None:
    service.planner.seconds, service.planner.slow = 0.3, slow
    answer = client.post("/v1/jobs:plan", json={"model": model, "input_shapes": SHAPES})
    assert (answer.status_code, answer.json()["code"]) == (422, "plan_time_limit")
    assert "budget.total_seconds" in answer.json()["hint"]
    assert answer.json()["details"] == {"limit_seconds": 0.3}
    service.planner.seconds, service.planner.slow = 20.0, {}
    assert plan(client, model)["possible"] is True


@pytest.mark.usefixtures("worker")
def test_an_engine_that_takes_half_of_the_time_is_left_out(client: TestClient, service: Service, model: str) -> None:
    service.planner.seconds, service.planner.slow = 1.0, {"relay": 0.5}
    relay, relax = plan(client, model)["engines"]
    assert (relay["failure"]["code"], relay["tuners"]) == ("plan_time_limit", [])
    assert [one["tuner"] for one in relax["tuners"]] == ["metaschedule"]


@pytest.mark.parametrize("path", ["/v1/jobs:plan", "/new/plan"])
def test_a_plan_ends_when_its_caller_leaves(
    client: TestClient, service: Service, worker: ScriptedWorker, model: str, path: str
) -> None:
    service.planner.seconds, service.planner.slow = 600.0, {"relay": 600.0}
    with serving(service) as url:
        asked = {"model": model, "input_shapes": SHAPES}
        given = {"json": asked} if path.startswith("/v1") else {"data": FORM | {"model": model}}
        request = httpx.Request("POST", url + path, headers=AUTHORIZED, **given)
        with contextlib.closing(http.client.HTTPConnection(request.url.netloc.decode())) as caller:
            caller.request("POST", path, body=request.content, headers=dict(request.headers))
            until(lambda: service.planner.started, seconds=10)
        assert service.planner.started == ["relay"]
        service.planner.slow = {}
        left = time.monotonic()
        while True:
            answer = httpx.post(f"{url}/v1/jobs:plan", headers=AUTHORIZED, json={**asked, "threads": 1})
            if answer.status_code == 200 or time.monotonic() > left + 2:
                break
            time.sleep(0.05)
        assert answer.status_code == 200, answer.json()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": "m-none"}, "model_not_found"),
        ({"tuner": "autotvn"}, "unknown_tuner"),
        ({"runner": "rpc"}, "invalid_option"),
        ({"input_shapes": {}}, "shape_required"),
        ({"misspelled": 1}, "invalid_request"),
    ],
)
def test_what_is_wrong_with_a_request(
    lasting: TestClient, lasting_model: str, changes: dict[str, Any], code: str
) -> None:
    answer = lasting.post("/v1/jobs:plan", json={"model": lasting_model, "input_shapes": SHAPES, **changes})
    assert answer.json()["code"] == code
