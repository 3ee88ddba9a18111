"""IRModules over the API: their own format, and requests that suit them."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

_CONTENT = b"static module"


@pytest.fixture
def module(client: TestClient) -> str:
    answer = client.put("/v1/models", params={"name": "matmul", "format": "irmodule"}, content=_CONTENT)
    assert (answer.status_code, answer.json()["format"]) == (201, "irmodule")
    model: str = answer.json()["id"]
    return model


def test_a_model_is_onnx_unless_it_says_otherwise(client: TestClient, module: str) -> None:
    assert client.put("/v1/models", content=b"static").json()["format"] == "onnx"
    assert client.get(f"/v1/models/{module}").json()["format"] == "irmodule"
    assert client.put("/v1/models?format=pickle", content=b"static").status_code == 400


def test_modules_hold_one_operator_and_are_small(client: TestClient) -> None:
    large = b" " * (16 * 1024**2 + 1)
    for content in (large, iter([large])):
        answer = client.put("/v1/models?format=irmodule", content=content)
        assert (answer.status_code, answer.json()["code"]) == (413, "blob_too_large")


@pytest.mark.parametrize("tuner", ["auto", "metaschedule"])
def test_auto_has_only_metaschedule_to_choose(client: TestClient, module: str, tuner: str) -> None:
    answer = client.post("/v1/jobs", json={"model": module, "tuner": tuner})
    assert (answer.status_code, answer.json()["tuner"]) == (202, "metaschedule")
    plan = client.post("/v1/jobs:plan", json={"model": module, "tuner": tuner}).json()
    assert plan["considered"] == ["metaschedule"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tuner": "autotvm"}, "tunes ONNX models"),
        ({"tuner": "ansor"}, "tunes ONNX models"),
        ({"precision": "fp16"}, "the dtypes of a tensor function are fixed"),
        ({"tuner_options": {"layout": "NHWC"}}, "the layout of a tensor function is fixed"),
        ({"tuner_options": {"rewrite": True}}, "are not rewritten"),
        ({"tuner_options": {"search": "ga"}}, "tuner metaschedule does not support option search"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    client: TestClient, module: str, asked: dict[str, Any], said: str
) -> None:
    answer = client.post("/v1/jobs", json={"model": module, **asked})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_option")
    assert said in answer.json()["detail"]
    assert answer.json()["hint"]
