"""Jobs that are like another one but for what the request says."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.jobs import creating
from tests.support.api.factories import SHAPES


def make(client: TestClient, **request: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json=request)
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


def refused(client: TestClient, **request: Any) -> tuple[int, str]:
    answer = client.post("/v1/jobs", json=request)
    return answer.status_code, answer.json()["code"]


ASKED = (
    "model", "model_digest", "target", "threads", "tuner", "runner", "rpc", "device", "precision", "accuracy",
    "bundle_format", "runtimes", "budget", "measure", "tuner_options", "input_shapes", "priority", "labels", "group",
)  # fmt: skip


def asked(job: dict[str, Any]) -> dict[str, Any]:
    """What the request came to."""
    return {name: job[name] for name in ASKED}


def test_nothing_but_like_asks_for_the_same(client: TestClient, model: str) -> None:
    old = make(
        client, model=model, input_shapes=SHAPES, target="llvm -mcpu=znver3", threads=2, tuner="autotvm",
        precision="auto", accuracy={"max_rel": 0.01}, budget={"trials": 64, "seconds": 30},
        measure={"number": 4, "timeout": 3.5}, tuner_options={"search": "ga", "early_stopping": 10, "rewrite": False},
        priority=2, labels={"team": "ocr"}, group="nightly", bundle_format="object",
        runtimes=["tvm"],
    )  # fmt: skip
    new = make(client, like=old["id"])
    assert new["id"] != old["id"]
    assert asked(new) == asked(old)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"target": "llvm -mcpu=znver2"}, {"target": "llvm -mcpu=znver2"}),
        ({"budget": {"seconds": 5}}, {"budget": {"trials": 64, "seconds": 5.0, "total_seconds": 3605.0}}),
        (
            {"budget": {"trials": None, "seconds": 5}},
            {"budget": {"trials": None, "seconds": 5.0, "total_seconds": 3605.0}},
        ),
        ({"budget": {"total_seconds": 90}}, {"budget": {"trials": 64, "seconds": None, "total_seconds": 90.0}}),
        ({"budget": None}, {"budget": {"trials": None, "seconds": 600.0, "total_seconds": 4200.0}}),
        ({"labels": {"run": "2"}}, {"labels": {"team": "ocr", "run": "2"}}),
        ({"labels": {"team": "nlp"}}, {"labels": {"team": "nlp"}}),
        ({"input_shapes": {"x": [4, 3, 8, 8]}}, {"input_shapes": {"x": [4, 3, 8, 8]}}),
        ({"group": None}, {"group": None}),
        ({"threads": None, "priority": None}, {"threads": None, "priority": 5}),
        ({"model": "other"}, {"model": "other", "input_shapes": SHAPES}),
    ],
)
def test_what_a_request_says_counts(
    client: TestClient, model: str, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    other = client.put("/v1/models", content=b"another dynamic model").json()["id"]
    old = make(
        client, model=model, input_shapes=SHAPES, threads=2, budget={"trials": 64}, labels={"team": "ocr"},
        group="nightly", priority=1,
    )  # fmt: skip
    named = {name: other if value == "other" else value for name, value in changes.items()}
    new = make(client, like=old["id"], **named)
    wanted = {name: other if value == "other" else value for name, value in expected.items()}
    assert {name: new[name] for name in wanted} == wanted
    same = set(ASKED) - set(wanted) - {"model_digest"}
    assert {name: new[name] for name in same} == {name: old[name] for name in same}


def test_options_are_merged_one_by_one(client: TestClient, model: str) -> None:
    old = make(
        client, model=model, input_shapes=SHAPES, tuner="autotvm", measure={"number": 4, "repeat": 7},
        tuner_options={"early_stopping": 10, "n_trial": 99, "feature_type": "curve"},
    )  # fmt: skip
    new = make(client, like=old["id"], measure={"number": 2}, tuner_options={"n_trial": None, "loss_type": "reg"})
    assert (new["measure"]["number"], new["measure"]["repeat"]) == (2, 7)
    options = new["tuner_options"]
    assert (options["early_stopping"], options["n_trial"]) == (10, None)
    assert (options["feature_type"], options["loss_type"]) == ("curve", "reg")


def test_what_another_tuner_lacks_falls_away(client: TestClient, model: str) -> None:
    old = make(
        client, model=model, input_shapes=SHAPES, tuner="autotvm",
        tuner_options={"feature_type": "curve", "early_stopping": 7},
    )  # fmt: skip
    new = make(client, like=old["id"], tuner="ansor")
    assert (new["tuner"], new["tuner_options"]["early_stopping"]) == ("ansor", 7)
    assert new["tuner_options"]["feature_type"] == "knob"
    new = make(client, like=old["id"], tuner_options={"search": "random"})
    assert (new["tuner_options"]["search"], new["tuner_options"]["feature_type"]) == ("random", "knob")
    wrong = {"like": old["id"], "tuner": "ansor", "tuner_options": {"feature_type": "curve"}}
    assert refused(client, **wrong) == (400, "invalid_option"), "what is said is not overlooked"


def test_what_another_runner_lacks_falls_away(client: TestClient, model: str) -> None:
    board = {"target": "llvm -mtriple=aarch64-linux-gnu", "threads": 4}
    old = make(
        client, model=model, input_shapes=SHAPES, runner="rpc", rpc={"tracker": "boards:9190", "key": "pi4"},
        budget={"trials": 5}, measure={"number": 2}, precision="fp16", accuracy={"top1": 0.9}, **board,
    )  # fmt: skip
    assert make(client, like=old["id"], rpc={"key": "pi5"})["rpc"]["tracker"] == "boards:9190"
    assert make(client, like=old["id"], runner="local", target="native")["rpc"] is None
    built = make(client, like=old["id"], runner="none", device="rpc/pi4/t4")
    assert (built["rpc"], built["device"]) == (None, "rpc/pi4/t4")
    assert built["accuracy"] == {"max_rel": None, "top1": None}
    measured = make(client, like=built["id"], runner="local")
    assert (measured["device"], measured["budget"]["seconds"]) == (None, 600.0)
    assert make(client, like=old["id"], precision="f32")["accuracy"] == {"max_rel": None, "top1": None}


def test_a_gpu_flushes_no_cpu_caches(client: TestClient, model: str) -> None:
    old = make(client, model=model, input_shapes=SHAPES, measure={"enable_cpu_cache_flush": True, "number": 3})
    new = make(client, like=old["id"], target="cuda -arch=sm_90")
    assert (new["measure"]["enable_cpu_cache_flush"], new["measure"]["number"]) == (False, 3)


def test_shapes_of_inputs_that_another_model_lacks_fall_away(client: TestClient, model: str) -> None:
    static = client.put("/v1/models", content=b"static model").json()["id"]
    old = make(client, model=model, input_shapes=SHAPES)
    assert refused(client, like=old["id"], model=static, input_shapes={"y": [1]}) == (400, "shape_mismatch")
    assert make(client, like=old["id"], model=static)["model"] == static


def test_a_module_is_tuned_again_as_it_was(client: TestClient) -> None:
    module = client.put("/v1/models?format=irmodule", content=b"static module").json()["id"]
    old = make(client, model=module, budget={"trials": 9})
    assert (old["tuner"], old["tuner_options"]["rewrite"]) == ("metaschedule", False)
    assert asked(make(client, like=old["id"])) == asked(old)
    onnx = client.put("/v1/models", content=b"static model").json()["id"]
    assert make(client, like=old["id"], model=onnx, tuner="auto")["tuner_options"]["rewrite"] is True


def test_a_plan_is_made_likewise(client: TestClient, job: str) -> None:
    plan = client.post("/v1/jobs:plan", json={"like": job, "tuner": "autotvm"})
    assert plan.status_code == 200, plan.text
    assert plan.json()["tuner"] == "autotvm"
    assert client.post("/v1/jobs:plan", json={"like": "j-none"}).json()["code"] == "job_not_found"


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"model": None}, 400, "invalid_request"),
        ({"like": None}, 400, "invalid_request"),
        ({"like": ""}, 400, "invalid_request"),
        ({"like": "j-none"}, 404, "job_not_found"),
        ({"like": 5}, 400, "invalid_request"),
    ],
)
def test_neither_a_model_nor_a_job(lasting: TestClient, request_: dict[str, Any], status: int, code: str) -> None:
    assert refused(lasting, **request_) == (status, code)


def test_changes_are_checked_as_a_whole(client: TestClient, job: str) -> None:
    assert refused(client, like=job, model="m-none") == (404, "model_not_found")
    assert refused(client, like=job, target="lvm") == (400, "unknown_target")
    assert refused(client, like=job, budget={"seconds": None}) == (400, "invalid_budget")
    full = make(client, like=job, labels={f"l{number}": "x" for number in range(60)})
    answer = client.post("/v1/jobs", json={"like": full["id"], "labels": {f"m{number}": "x" for number in range(5)}})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["details"]["errors"][0]["field"] == "labels"


def test_setting_something_back_is_another_request(client: TestClient, model: str) -> None:
    old = make(client, model=model, input_shapes=SHAPES, group="nightly")["id"]
    key = {"Idempotency-Key": "k-1"}
    first = client.post("/v1/jobs", json={"like": old}, headers=key).json()
    assert client.post("/v1/jobs", json={"like": old}, headers=key).json()["id"] == first["id"]
    other = client.post("/v1/jobs", json={"like": old, "group": None}, headers=key)
    assert other.json()["code"] == "idempotency_mismatch"


def test_merging_leaves_what_it_merges() -> None:
    old = {"a": {"b": 1, "c": 2}, "d": [1], "e": {"f": 1}}
    new = {"a": {"c": None}, "d": [], "e": None, "g": {"h": 1}}
    assert creating.merge(old, new) == {"a": {"b": 1, "c": None}, "d": [], "e": None, "g": {"h": 1}}
    assert old == {"a": {"b": 1, "c": 2}, "d": [1], "e": {"f": 1}}
