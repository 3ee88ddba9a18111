"""Every operation of the OpenAPI document, asked with what it allows and with what it does not: the answers are those
that the document promises, and the service never fails. ``FUZZ_EXAMPLES=300`` searches longer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from domain.jobs import Failure
from tests.support.api.factories import AUTHORIZED, Service, open_service
from tests.support.api.scripted import ScriptedWorker

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "8"))
UNLIMITED = {"rate_per_second": 1e6, "rate_burst": 10**9, "failures_per_second": 1e6, "failures_burst": 10**9}
NOTHING_TO_GET_WRONG = {
    "GET /healthz",
    "GET /readyz",
}
"""Operations without parameters, headers and bodies."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with open_service(tmp_path_factory.mktemp("fuzz"), **UNLIMITED) as made:
        yield made


@pytest.fixture(scope="module")
def document(service: Service) -> BaseSchema:
    return schemathesis.openapi.from_asgi("/openapi.json", service.app)


@pytest.fixture(scope="module")
def known(service: Service, document: BaseSchema) -> dict[str, list[str]]:
    """What there is, by the parameter that names it: ids that no generator would guess."""
    call = ask(service)
    model = call("PUT", "/v1/models?name=net", content=b"static model")["id"]
    worker = ScriptedWorker(service)
    worker.beat()
    jobs = [call("POST", "/v1/jobs", json={"model": model, "group": "night"})["id"] for _ in range(4)]
    worker.run(jobs[0])
    worker.fail(jobs[1], Failure(code="engine_crashed", message="it crashed"))
    worker.begin(jobs[2])
    artifact = call("GET", f"/v1/jobs/{jobs[0]}")["artifact_id"]
    token = call("POST", "/v1/tokens", json={"name": "ci", "scopes": ["read"]})["id"]
    # A stream of the job that still runs would not end.
    ended = [jobs[0], jobs[1]]
    return {
        "model": [model],
        "job_id": jobs,
        "ended": ended,
        "job": jobs,
        "like": jobs,
        "artifact": [artifact],
        "token_id": [token],
        "name": ["night"],
    }


def ask(service: Service) -> Any:
    client = TestClient(service.app, headers=AUTHORIZED)

    def call(method: str, path: str, **more: Any) -> Any:
        answer = client.request(method, path, **more)
        assert answer.is_success, answer.text
        return answer.json()

    return call


def problems_of(document: BaseSchema, mode: GenerationMode, known: dict[str, list[str]]) -> list[str]:
    """One text for each operation that did not keep its promises."""
    found = []
    for result in document.get_all_operations():
        operation = result.ok()
        if mode.is_negative and operation.label in NOTHING_TO_GET_WRONG:
            continue

        @given(case=operation.as_strategy(generation_mode=mode), choice=st.integers(0, 7))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        )
        def holds(case: Case, choice: int) -> None:
            if mode.is_positive:
                name_what_there_is(case, known, choice)
            response = case.call_and_validate(headers=AUTHORIZED, excluded_checks=[positive_data_acceptance])
            if mode.is_positive:
                assert not refused_by_the_document(response), response.text

        try:
            holds()
        except (AssertionError, FailureGroup) as error:
            found.append(f"{operation.label}: {error}")
    return found


def refused_by_the_document(response: Any) -> bool:
    """Rules that no schema can tell have codes of their own, or say so."""
    if response.status_code != 400:
        return False
    errors = response.json()["details"].get("errors", [])
    return any(not error["message"].startswith("Value error, ") for error in errors)


def name_what_there_is(case: Case, known: dict[str, list[str]], choice: int) -> None:
    """In half of the requests, so that they get further than to say that nothing was found."""
    if choice % 2:
        return
    for named in (case.path_parameters, case.query, case.body):
        if isinstance(named, dict):
            for name in named.keys() & known.keys():
                ids = known["ended" if case.operation.path.endswith("/events") else name]
                if isinstance(named[name], str):
                    named[name] = ids[choice // 2 % len(ids)]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_answers_are_as_promised(document: BaseSchema, known: dict[str, list[str]], mode: GenerationMode) -> None:
    found = problems_of(document, mode, known)
    assert not found, "\n\n".join(found)
