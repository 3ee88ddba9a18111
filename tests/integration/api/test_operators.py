from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

CONV = {
    "operator": "conv2d",
    "shapes": {"x": [1, 64, 56, 56], "w": [64, 64, 3, 3]},
    "attributes": {"strides": 1, "padding": [1, 1]},
}


def test_an_operator_becomes_a_model_once(client: TestClient) -> None:
    first = client.post("/v1/models:operator", json=CONV)
    assert first.status_code == 201, first.json()
    assert first.json()["name"] == "conv2d 1×64×56×56 ∗ 64×64×3×3 padding=1,1,1,1"
    again = client.post("/v1/models:operator", json={**CONV, "attributes": {"padding": 1}, "name": "another"})
    assert (again.status_code, again.json()) == (200, first.json())
    other = client.post("/v1/models:operator", json={**CONV, "attributes": {"padding": 0}, "name": "mine"})
    assert (other.status_code, other.json()["name"]) == (201, "mine")
    assert client.post("/v1/jobs", json={"model": other.json()["id"]}).status_code == 202


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"operator": "conv2"}, "invalid_operator"),
        ({"dtype": "int4"}, "invalid_operator"),
        ({"shapes": {"x": [1, 64, 56, 56]}}, "invalid_operator"),
        ({"shapes": {"x": [1, 64, 56, 56], "w": [64, 32, 3, 3]}}, "invalid_operator"),
        ({"attributes": {"stride": 1}}, "invalid_operator"),
        ({"attributes": {"strides": "1"}}, "invalid_request"),
        ({"attributes": {"strides": True}}, "invalid_request"),
        ({"shapes": {"x": [1.5], "w": [1]}}, "invalid_request"),
        ({"shapes": {"x": [1] * 99, "w": [1]}}, "invalid_request"),
        ({"code": "import os"}, "invalid_request"),
        ({"name": "a\nb"}, "invalid_request"),
    ],
)
def test_what_is_no_operator(lasting: TestClient, changes: dict[str, Any], code: str) -> None:
    answer = lasting.post("/v1/models:operator", json={**CONV, **changes})
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.json()["hint"]
    assert lasting.get("/v1/models").json()["models"] == []
