from __future__ import annotations

import io
import json

import pytest
from fastapi.testclient import TestClient

from tests.support.api.factories import Service


def test_every_answer_has_an_id_and_a_problem_tells_it(client: TestClient) -> None:
    answers = [client.get("/healthz"), client.get("/v1/jobs"), client.get("/v1/jobs/j-none"), client.get("/nothing")]
    given = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(given)) == len(given)
    assert answers[2].json()["request_id"] == given[2]
    assert answers[3].json()["request_id"] == given[3]


@pytest.mark.parametrize("name", ["ci-build.7_a", "x" * 64])
def test_the_callers_own_id_is_kept(lasting: TestClient, name: str) -> None:
    answer = lasting.get("/v1/jobs/j-none", headers={"X-Request-ID": name})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == name


@pytest.mark.parametrize("name", ["", "x" * 65, "two words", 'a"b', "a;b"])
def test_one_that_is_long_or_odd_is_not(lasting: TestClient, name: str) -> None:
    given = lasting.get("/healthz", headers={"X-Request-ID": name}).headers["x-request-id"]
    assert given != name
    assert len(given) == 16


def test_the_log_of_a_failure_has_the_id_of_its_answer(client: TestClient, service: Service, log: io.StringIO) -> None:
    answer = client.put("/v1/models?name=x.onnx", content=b"crash", headers={"X-Request-ID": "the-one"})
    assert (answer.status_code, answer.headers["x-request-id"], answer.json()["request_id"]) == (500, *2 * ["the-one"])
    assert "secret" not in answer.text
    [line] = [line for line in map(json.loads, log.getvalue().splitlines()) if line["level"] == "error"]
    assert line["request_id"] == "the-one"
    assert "a secret of the inside" in line["exception"]
