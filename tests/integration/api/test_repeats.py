"""The same Idempotency-Key gets the same answer, whatever is made, and nothing is done twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from domain.jobs import Failure
from storage import idempotency
from storage.tables import IdempotencyKeyRow
from tests.support.api.factories import SHAPES, Service
from tests.support.api.refusals import RECORD
from tests.support.api.scripted import ScriptedWorker

PLACE = {"tuner": "autotvm", "target": "llvm -mcpu=znver3", "threads": 2, "device": "a board"}


def create(client: TestClient, model: str, key: str, **request: Any) -> Any:
    body = {"model": model, "input_shapes": SHAPES, **request}
    return client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})


def keyed(client: TestClient, path: str, key: str, **more: Any) -> Any:
    return client.post(path, headers={"Idempotency-Key": key}, **more)


def failed(client: TestClient, service: Service, model: str) -> str:
    job = str(client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES}).json()["id"])
    ScriptedWorker(service).fail(job, Failure(code="engine_crashed", message="it crashed"))
    return job


def records(client: TestClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/records").json()["records"]
    return found


def test_a_retry_is_made_once(client: TestClient, service: Service, model: str) -> None:
    job = failed(client, service, model)
    first = keyed(client, f"/v1/jobs/{job}:retry", "k-1")
    again = keyed(client, f"/v1/jobs/{job}:retry", "k-1")
    assert first.status_code == again.status_code == 202
    assert first.json()["id"] == again.json()["id"] != job
    assert service.publisher.rung == 2
    other = keyed(client, f"/v1/jobs/{job}:retry", "k-2").json()["id"]
    assert other not in (job, first.json()["id"])


def test_of_many_at_once_with_one_key_one_makes_a_job(client: TestClient, service: Service, model: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: create(client, model, "k-1"), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(client.get("/v1/jobs").json()["jobs"]) == service.publisher.rung == 1


def test_a_retry_whose_answer_was_lost_is_answered_even_when_it_has_succeeded(
    client: TestClient, service: Service, model: str
) -> None:
    job = failed(client, service, model)
    made = keyed(client, f"/v1/jobs/{job}:retry", "k-1").json()["id"]
    ScriptedWorker(service).run(made)
    assert keyed(client, f"/v1/jobs/{job}:retry", "k-1").json()["id"] == made


def test_a_failed_request_does_not_use_up_its_key(client: TestClient, service: Service, job: str) -> None:
    early = keyed(client, f"/v1/jobs/{job}:retry", "k-1")
    assert (early.status_code, early.json()["code"]) == (409, "job_not_finished")
    ScriptedWorker(service).fail(job, Failure(code="engine_crashed", message="it crashed"))
    assert keyed(client, f"/v1/jobs/{job}:retry", "k-1").status_code == 202


def test_an_import_is_told_once_more_and_not_done(client: TestClient, service: Service) -> None:
    ScriptedWorker(service).beat()
    first = keyed(client, "/v1/records", "k-1", params=PLACE, content=RECORD)
    assert first.status_code == 200, first.text
    assert first.json()["imported"] == 1
    again = keyed(client, "/v1/records", "k-1", params=PLACE, content=RECORD)
    assert again.json() == first.json(), "without the key it would say that the records are known"
    without = client.post("/v1/records", params=PLACE, content=RECORD).json()
    assert (without["imported"], without["known_already"]) == (0, 1)


@pytest.mark.parametrize("change", [{"content": RECORD + RECORD}, {"params": {**PLACE, "device": "another"}}])
def test_another_import_with_the_same_key(client: TestClient, service: Service, change: dict[str, Any]) -> None:
    ScriptedWorker(service).beat()
    request = {"params": PLACE, "content": RECORD}
    assert keyed(client, "/v1/records", "k-1", **request).status_code == 200
    count = len(records(client))
    other = keyed(client, "/v1/records", "k-1", **{**request, **change})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert len(records(client)) == count


def test_one_key_is_one_request_whatever_it_makes(client: TestClient, service: Service, model: str) -> None:
    job = failed(client, service, model)
    assert create(client, model, "k-1").status_code == 202
    other = keyed(client, f"/v1/jobs/{job}:retry", "k-1")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    third = keyed(client, "/v1/records", "k-1", params=PLACE, content=RECORD)
    assert (third.status_code, third.json()["code"]) == (422, "idempotency_mismatch")


def test_a_key_is_forgotten_after_a_week(client: TestClient, service: Service, model: str) -> None:
    first = create(client, model, "k-1").json()["id"]

    def aged(by: timedelta) -> None:
        with service.database.transaction() as session:
            session.execute(update(IdempotencyKeyRow).values(created_at=datetime.now(UTC) - by))

    aged(idempotency.KEPT - timedelta(minutes=1))
    assert create(client, model, "k-1").json()["id"] == first
    aged(idempotency.KEPT + timedelta(minutes=1))
    second = create(client, model, "k-1", tuner="autotvm")
    assert second.status_code == 202
    assert second.json()["id"] != first
    assert create(client, model, "k-1", tuner="autotvm").json()["id"] == second.json()["id"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/j-1:retry", "/v1/records?tuner=autotvm"])
@pytest.mark.parametrize("key", ["", "k" * 256])
def test_keys_have_bounds(lasting: TestClient, path: str, key: str) -> None:
    answer = lasting.post(path, json={"model": "m-1"}, headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "Idempotency-Key" in answer.json()["detail"]


def test_the_longest_key_and_any_characters_will_do(client: TestClient, service: Service, model: str) -> None:
    for key in ("k" * 255, "\xe9\xff~ ,;=", '"quoted"'):
        answers = [
            client.post(
                "/v1/jobs",
                json={"model": model, "input_shapes": SHAPES},
                headers={"Idempotency-Key": key.encode("latin-1")},  # type: ignore[dict-item]
            )
            for _ in range(2)
        ]
        assert answers[0].json()["id"] == answers[1].json()["id"], key
