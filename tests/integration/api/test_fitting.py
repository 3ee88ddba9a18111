from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from domain.jobs import AccuracyGate, Precision
from storage import jobs
from tests.support.api.factories import SHAPES, Service

BOARD = {"runner": "rpc", "target": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "threads": 4}
RPC = {"tracker": "boards.local:9190", "key": "rk3588"}


@pytest.mark.parametrize(
    "request_",
    [
        {"tuner": "ansor", "tuner_options": {"layout": "NHWC", "n_trial": 64}},
        {"runner": "none", "target": "llvm -mtriple=aarch64-linux-gnu", "device": "rpc/pi4/t4", "threads": 4},
        {"tuner": "metaschedule", "tuner_options": {"layout": "NHWC", "early_stopping": 64}},
        {"tuner": "autotvm", "tuner_options": {"search": "ga", "transfer": False}},
        {"tuner": "autotvm", "tuner_options": {"loss_type": "reg", "feature_type": "curve", "keep_layout": False}},
        {"tuner": "auto", "tuner_options": {"search": "gridsearch", "layout": "NHWC"}},
        {"tuner": "ansor", "tuner_options": {"rewrite": True}},
        {"target": "cuda -arch=sm_90", "tuner_options": {"rewrite": False}},
        {"tuner": "metaschedule", "target": "cuda -arch=sm_90"},
        {**BOARD, "rpc": RPC},
        {**BOARD, "rpc": {**RPC, "tracker": "[::1]:9190"}},
        {"runner": "none", "target": "llvm -mtriple=aarch64-linux-gnu", "bundle_format": "object"},
        {"runner": "none", "target": "llvm -mtriple=aarch64-linux-gnu", "budget": {"total_seconds": 600}},
        {"precision": "fp16", "bundle_format": "system-lib"},
        {"precision": "int8", "tuner": "metaschedule", "accuracy": {"max_rel": 0.05}},
        {"precision": "auto", "accuracy": {"max_rel": 0.01, "top1": 1}},
        {"precision": "bf16", "accuracy": {"max_rel": None, "top1": None}},
        {"tuner_options": {"search": None, "loss_type": None, "keep_layout": None, "layout": None, "transfer": None}},
    ],
)
def test_what_goes_together(client: TestClient, model: str, request_: dict[str, Any]) -> None:
    answer = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **request_})
    assert answer.status_code == 202, answer.json()
    job = answer.json()
    for name in ("tuner", "runner", "precision", "bundle_format"):
        assert job[name] == request_.get(name, job[name])
    assert job["rpc"] == ({**request_["rpc"], "session_timeout": 60.0} if "rpc" in request_ else None)


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        (BOARD, "invalid_option", "tracker"),
        ({**BOARD, "rpc": RPC, "target": "native"}, "unsupported_target", "native"),
        ({**BOARD, "rpc": RPC, "threads": None}, "invalid_option", "number of cores"),
        ({"rpc": RPC}, "invalid_option", "no effect with runner 'local'"),
        ({**BOARD, "rpc": {**RPC, "tracker": "boards"}}, "invalid_option", "not a tracker address"),
        ({**BOARD, "rpc": {**RPC, "tracker": "boards:70000"}}, "invalid_option", "not a tracker address"),
        ({**BOARD, "rpc": {**RPC, "key": "a b"}}, "invalid_request", "rpc.key"),
        ({**BOARD, "rpc": {**RPC, "session_timeout": 0}}, "invalid_request", "session_timeout"),
        ({**BOARD, "rpc": {"tracker": "a:1"}}, "invalid_request", "key"),
        ({"runner": "none", "budget": {"trials": 8}}, "invalid_option", "a budget"),
        ({"runner": "none", "measure": {"number": 3}}, "invalid_option", "measure options"),
        ({"tuner": "autotvm", "target": "cuda -arch=sm_90"}, "unsupported_target", "autotvm"),
        ({"tuner": "ansor", "target": "cuda -arch=sm_90"}, "unsupported_target", "ansor"),
        ({"target": "cuda -arch=sm_90", "measure": {"enable_cpu_cache_flush": True}}, "invalid_option", "GPU"),
        ({"target": "cuda -arch=sm_90", "tuner_options": {"rewrite": True}}, "invalid_option", "rewrite"),
        ({"target": "cuda"}, "unknown_target", "needs -arch"),
        ({"target": "llvm -num-cores=4"}, "unknown_target", "-num-cores is not allowed"),
        ({"tuner": "ansor", "tuner_options": {"loss_type": "reg"}}, "invalid_option", "loss_type"),
        ({"tuner": "metaschedule", "tuner_options": {"transfer": True}}, "invalid_option", "transfer"),
        ({"device": "rpc/pi4/t4"}, "invalid_option", "runner 'local'"),
        ({"runner": "none", "device": "rpc/pi4/t4", "threads": 2}, "invalid_option", "4 threads"),
        ({"tuner": "ansor", "tuner_options": {"search": "xgb"}}, "invalid_option", "search"),
        ({"tuner": "metaschedule", "tuner_options": {"feature_type": "knob"}}, "invalid_option", "feature_type"),
        ({"tuner": "metaschedule", "tuner_options": {"keep_layout": True}}, "invalid_option", "keep_layout"),
        ({"tuner": "autotvm", "tuner_options": {"layout": "NHWC"}}, "invalid_option", "layout"),
        ({"tuner_options": {"search": "ga", "loss_type": "reg"}}, "invalid_option", "no cost model"),
        ({"tuner_options": {"search": "random", "transfer": True}}, "invalid_option", "no cost model"),
        ({"tuner_options": {"search": "xgbb"}}, "invalid_option", "xgbb"),
        ({"tuner_options": {"loss_type": "ranked"}}, "invalid_option", "rank"),
        ({"tuner_options": {"feature_type": "knobs"}}, "invalid_option", "knobs"),
        ({"tuner_options": {"layout": "NCWH"}}, "invalid_option", "NCWH"),
        ({"bundle_format": "systemlib"}, "invalid_option", "systemlib"),
        ({"runtimes": ["tvm", "openvin"]}, "invalid_option", "unknown runtime 'openvin'"),
        ({"runtimes": ["onnxruntime"]}, "invalid_option", "runtimes lack 'tvm'"),
        ({"runtimes": "tvm"}, "invalid_request", "runtimes"),
        ({"tuner": "metaschedul"}, "unknown_tuner", "metaschedul"),
        ({"precision": "f16"}, "unknown_precision", "f16"),
        ({"accuracy": {"max_rel": 0.01}}, "invalid_option", "precisions other than f32"),
        ({"precision": "int8", "runner": "none", "accuracy": {"top1": 0.9}}, "invalid_option", "compares nothing"),
        ({"precision": "int8", "tuner": "autotvm"}, "invalid_option", "no schedules for int8"),
        ({"precision": "bf16", "tuner": "ansor"}, "invalid_option", "no schedules for bf16"),
        ({"precision": "int8", "target": "cuda -arch=sm_90"}, "unsupported_target", "supported on CPUs"),
        ({"precision": "bf16", "target": "cuda -arch=sm_90"}, "unsupported_target", "supported on CPUs"),
        ({"precision": "int8", "accuracy": {"max_rel": 0}}, "invalid_request", "max_rel"),
        ({"precision": "int8", "accuracy": {"max_rel": 1.5}}, "invalid_request", "max_rel"),
        ({"precision": "int8", "accuracy": {"top1": 99}}, "invalid_request", "top1"),
        ({"precision": "int8", "accuracy": {"top5": 0.9}}, "invalid_request", "top5"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_hint(
    lasting: TestClient, lasting_model: str, request_: dict[str, Any], code: str, word: str
) -> None:
    answer = lasting.post("/v1/jobs", json={"model": lasting_model, "input_shapes": SHAPES, **request_})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, code), problem
    assert word in problem["detail"]
    assert problem["hint"]
    assert lasting.get("/v1/jobs").json()["jobs"] == []


def test_near_matches_of_options(lasting: TestClient, lasting_model: str) -> None:
    def near(**request: Any) -> str:
        answer = lasting.post("/v1/jobs", json={"model": lasting_model, "input_shapes": SHAPES, **request}).json()
        return str(answer["details"]["near_matches"][0])

    assert near(tuner="metaschedul") == "metaschedule"
    assert near(tuner_options={"loss_type": "rankbinary"}) == "rank-binary"
    assert near(tuner_options={"search": "gird"}) == "gridsearch"
    assert near(bundle_format="systemlib") == "system-lib"
    assert near(precision="f16") == "fp16"


def test_what_was_asked_for_reaches_the_worker(client: TestClient, service: Service, model: str) -> None:
    options = {"search": "xgb", "loss_type": "reg", "feature_type": "itervar", "keep_layout": False, "transfer": False}
    request_ = {**BOARD, "tuner": "autotvm", "rpc": {**RPC, "session_timeout": 9}, "tuner_options": options}
    job = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **request_}).json()
    with service.database.reading() as session:
        stored = jobs.get(session, job["id"]).request
    assert stored.rpc is not None
    assert (stored.rpc.tracker, stored.rpc.key, stored.rpc.session_timeout) == ("boards.local:9190", "rk3588", 9)
    assert {name: getattr(stored.tuner_options, name) for name in options} == options
    assert options.items() <= job["tuner_options"].items()
    assert stored.tuner_options.layout is None


def test_the_accuracy_gate_reaches_the_worker(client: TestClient, service: Service, model: str) -> None:
    asked = {"precision": "auto", "accuracy": {"max_rel": 0.01}}
    job = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **asked}).json()
    assert job["accuracy"] == {"max_rel": 0.01, "top1": None}
    with service.database.reading() as session:
        stored = jobs.get(session, job["id"]).request
    assert (stored.precision, stored.accuracy) == (Precision.AUTO, AccuracyGate(max_rel=0.01))
