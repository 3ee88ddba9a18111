"""What a token's quota refuses over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from domain.tokens import Quota
from tests.support.api import callers
from tests.support.api.factories import AUTHORIZED, SHAPES, Service
from tests.support.api.scripted import ScriptedWorker

MODEL = b"dynamic model"


def test_a_full_queue_refuses_a_job(service: Service, client: TestClient) -> None:
    headers = callers.headers(service, quota=Quota(queued_jobs=1))
    model = client.put("/v1/models", content=MODEL, headers=headers).json()["id"]
    body = {"model": model, "input_shapes": SHAPES}
    first = client.post("/v1/jobs", json=body, headers={**headers, "Idempotency-Key": "k"})
    assert first.status_code == 202
    refused = client.post("/v1/jobs", json=body, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert refused.json()["details"] == {"quota": "queued_jobs", "limit": 1}
    assert "the token has reached its limit of 1 queued job" in refused.text
    assert refused.json()["hint"]
    again = client.post("/v1/jobs", json=body, headers={**headers, "Idempotency-Key": "k"})
    assert again.json()["id"] == first.json()["id"]
    job = first.json()["id"]
    assert client.post(f"/v1/jobs/{job}:cancel", headers=headers).status_code == 202
    assert client.post(f"/v1/jobs/{job}:retry", headers=headers).status_code == 202
    assert client.post("/v1/jobs", json=body, headers=headers).status_code == 429
    own = client.get("/v1/tokens/self", headers=headers).json()
    assert own["usage"]["queued_jobs"] == own["quota"]["queued_jobs"] == 1


def test_a_job_that_its_quota_holds_says_so(service: Service, client: TestClient) -> None:
    headers = callers.headers(service, quota=Quota(running_jobs=1))
    model = client.put("/v1/models", content=MODEL, headers=headers).json()["id"]
    body = {"model": model, "input_shapes": SHAPES}
    first, second = (client.post("/v1/jobs", json=body, headers=headers).json()["id"] for _ in range(2))
    worker = ScriptedWorker(service)
    worker.beat()
    lease = worker.begin(first)
    assert lease
    told = client.get(f"/v1/jobs/{second}", headers=headers).json()["waits_for"]
    assert "the token's running-job limit" in told
    listed = client.get("/v1/jobs?state=queued", headers=headers).json()["jobs"]
    assert [job["waits_for"] for job in listed] == [told]
    worker.finish(first, lease)
    assert client.get(f"/v1/jobs/{second}", headers=headers).json()["waits_for"] is None
    worker.run(second)


def test_of_two_requests_at_once_one_gets_the_last_place(service: Service, client: TestClient) -> None:
    headers = callers.headers(service, quota=Quota(queued_jobs=1))
    model = client.put("/v1/models", content=MODEL, headers=headers).json()["id"]
    body = {"model": model, "input_shapes": SHAPES}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/jobs", json=body, headers=headers).status_code, range(4)))
    assert sorted(answers) == [202, 429, 429, 429]


def test_an_upload_that_does_not_fit_is_refused_before_its_body_is_read(service: Service, client: TestClient) -> None:
    headers = callers.headers(service, quota=Quota(stored_bytes=20))
    taken = []

    def body() -> Iterator[bytes]:
        for piece in range(1000):
            taken.append(piece)
            yield b"m" * 1024 * 1024

    announced = {"Content-Length": str(1000 * 1024 * 1024)}
    refused = client.put("/v1/models", content=body(), headers={**headers, **announced})
    assert len(taken) < 10
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert refused.json()["details"] == {"quota": "stored_bytes", "limit": 20, "stored": 0}
    assert client.put("/v1/models", content=MODEL, headers=headers).status_code == 201


@pytest.mark.parametrize("announced", [True, False])
def test_bytes_count_whoever_announces_them(service: Service, client: TestClient, announced: bool) -> None:
    headers = callers.headers(service, quota=Quota(stored_bytes=20))

    def put(content: bytes) -> tuple[int, str | None]:
        answer = client.put("/v1/models", content=content if announced else iter([content]), headers=headers)
        return answer.status_code, answer.json().get("code")

    assert put(MODEL) == (201, None)
    assert put(MODEL) == (200, None)
    assert put(b"longer than the others") == (429, "quota_exceeded")
    assert put(b"another model"[: len(MODEL)]) == (429, "quota_exceeded")
    assert put(b"seven b") == (201, None)
    assert put(b"x") == (429, "quota_exceeded")
    assert put(MODEL) == (200, None)
    assert client.get("/v1/tokens/self", headers=headers).json()["usage"]["stored_bytes"] == 20
    kept = [path for path in (service.home / "blobs").rglob("*") if path.is_file()]
    assert len(kept) == 2


def test_a_model_that_somebody_else_has_counts_as_well(service: Service, client: TestClient) -> None:
    assert client.put("/v1/models", content=MODEL).status_code == 201
    headers = callers.headers(service, quota=Quota(stored_bytes=5))
    refused = client.put("/v1/models", content=iter([MODEL]), headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert client.get("/v1/models", headers=headers).json()["models"] == []
    assert len(client.get("/v1/models", headers=AUTHORIZED).json()["models"]) == 1


def test_operators_count_as_well(service: Service, client: TestClient) -> None:
    headers = callers.headers(service, quota=Quota(stored_bytes=5))
    body = {"operator": "dense", "shapes": {"x": [1, 64], "w": [10, 64]}}
    refused = client.post("/v1/models:operator", json=body, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
