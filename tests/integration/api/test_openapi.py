"""The OpenAPI document is complete: whoever reads nothing else can use every route, and knows how each can fail."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema_rs import validator_for

from api import problems
from api.documentation import openapi
from tests.support.api.factories import SHAPES, Service

OPEN = {"/healthz", "/readyz"}


@pytest.fixture
def schema(service: Service) -> dict[str, Any]:
    return service.app.openapi()


def test_every_operation_says_what_it_does(schema: dict[str, Any]) -> None:
    seen = set()
    tags = {tag["name"] for tag in schema["tags"]}
    for method, path, operation in openapi.operations(schema):
        name = f"{method} {path}"
        assert operation["operationId"] not in seen, name
        seen.add(operation["operationId"])
        assert operation["description"], name
        assert set(operation["tags"]) <= tags, name
        for parameter in operation.get("parameters", []):
            assert parameter["description"], f"{name} {parameter['name']}"


def test_every_operation_says_how_it_can_fail(schema: dict[str, Any]) -> None:
    for method, path, operation in openapi.operations(schema):
        name, responses = f"{method} {path}", operation["responses"]
        failures = {status for status in responses if status >= "400"}
        for status in failures:
            assert problems.MEDIA_TYPE in responses[status]["content"], f"{name} {status}"
            assert responses[status]["description"], f"{name} {status}"
        if path not in OPEN:
            assert {"400", "401", "403", "429", "500"} <= failures, name
        if "{" in path:
            assert "404" in failures, name
        if "requestBody" in operation:
            assert {"408", "413"} <= failures, name
        if "429" in failures:
            assert "Retry-After" in responses["429"]["headers"], name


def test_every_operation_says_who_may_ask(schema: dict[str, Any]) -> None:
    schemes = schema["components"]["securitySchemes"]
    assert {scheme["type"] for scheme in schemes.values()} == {"http", "apiKey"}
    for method, path, operation in openapi.operations(schema):
        if path not in OPEN:
            asked = {name for way in operation["security"] for name in way}
            assert asked == set(schemes), f"{method} {path}"


def test_every_json_answer_to_a_get_can_be_asked_for_conditionally(schema: dict[str, Any]) -> None:
    for method, path, operation in openapi.operations(schema):
        if method == "get" and "application/json" in operation["responses"]["200"].get("content", {}):
            assert "ETag" in operation["responses"]["200"]["headers"], path
            assert "304" in operation["responses"], path


def test_examples_are_what_the_schemas_allow(schema: dict[str, Any]) -> None:
    for name, examples in openapi.EXAMPLES.items():
        whole = {"$ref": f"#/components/schemas/{name}", "components": schema["components"]}
        for example in examples:
            validator_for(whole).validate(example)


def test_an_example_is_taken(client: TestClient) -> None:
    model = client.put("/v1/models", content=b"static model").json()["id"]
    (example,) = openapi.EXAMPLES["JobDraft"]
    answer = client.post("/v1/jobs", json={**example, "model": model, "input_shapes": SHAPES})
    assert answer.status_code == 202, answer.text
    (operator,) = openapi.EXAMPLES["OperatorDraft"]
    assert client.post("/v1/models:operator", json=operator).status_code == 201
