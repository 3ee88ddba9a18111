"""Who is told of a job's end, and what became of it."""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from storage import jobs, webhooks
from tests.support.api import callers
from tests.support.api.factories import AUTHORIZED, SHAPES, Service, open_service
from tests.support.api.scripted import ScriptedWorker

URL = "https://hooks.example.com/tuned?key=value"
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


def create(client: TestClient, model: str, **request: Any) -> Any:
    return client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **request})


def attached(service: Service, job_id: str) -> tuple[str, str] | None:
    with service.database.reading() as session:
        webhook = webhooks.of_job(session, job_id)
    return (webhook.url, webhook.secret) if webhook else None


def test_a_secret_is_made_and_shown_once(
    client: TestClient, service: Service, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = create(client, model, webhook={"url": URL}).json()
    secret = made["webhook"]["secret"]
    assert made["webhook"]["url"] == URL
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert attached(service, made["id"]) == (URL, secret)
    ScriptedWorker(service).run(made["id"])
    later = [
        client.get(path).text
        for path in (
            f"/v1/jobs/{made['id']}", "/v1/jobs", f"/v1/jobs/{made['id']}/deliveries",
            f"/v1/jobs/{made['id']}/events", f"/v1/jobs/{made['id']}/report", f"/jobs/{made['id']}",
        )
    ]  # fmt: skip
    later.append(client.post(f"/v1/jobs/{made['id']}/deliveries:resend").text)
    assert [text for text in later if secret in text or secret[6:] in text] == []
    assert secret not in caplog.text
    with service.database.reading() as session:
        assert secret not in repr(jobs.get(session, made["id"]))


def test_ones_own_secret_is_taken(client: TestClient, service: Service, model: str) -> None:
    made = create(client, model, webhook={"url": URL, "secret": SECRET}).json()
    assert made["webhook"] == {"url": URL, "secret": SECRET}
    assert attached(service, made["id"]) == (URL, SECRET)


def test_a_repeated_request_is_not_told_the_secret(client: TestClient, service: Service, model: str) -> None:
    key = {"Idempotency-Key": "k-1"}
    request = {"model": model, "input_shapes": SHAPES, "webhook": {"url": URL}}
    first = client.post("/v1/jobs", json=request, headers=key).json()
    again = client.post("/v1/jobs", json=request, headers=key).json()
    assert again["id"] == first["id"]
    assert again["webhook"] == {"url": URL, "secret": None}
    assert attached(service, first["id"]) == (URL, first["webhook"]["secret"])
    other = client.post("/v1/jobs", json={**request, "webhook": {"url": URL, "secret": SECRET}}, headers=key)
    assert other.json()["code"] == "idempotency_mismatch"


def test_a_job_without_a_webhook_says_so(client: TestClient, job: str) -> None:
    assert client.get(f"/v1/jobs/{job}/deliveries").json() == {"url": None, "deliveries": []}
    answer = client.post(f"/v1/jobs/{job}/deliveries:resend")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    "webhook",
    [
        {"url": "ftp://hooks.example.com/"},
        {"url": "hooks.example.com"},
        {"url": ""},
        {"url": "https://user:word@hooks.example.com/"},
        {"url": "http://localhost/"},
        {"url": "http://127.0.0.1:8000/"},
        {"url": "http://0x7f.1/"},
        {"url": "http://169.254.169.254/latest/meta-data"},
        {"url": "http://[::1]/"},
        {"url": "http://[::ffff:10.0.0.1]/"},
        {"url": "http://10.0.0.1/"},
        {"url": URL, "secret": "whsec_short"},
        {"url": URL, "secret": "password"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs:plan"])
def test_what_is_wrong_with_a_webhook(
    lasting: TestClient, lasting_model: str, path: str, webhook: dict[str, str]
) -> None:
    answer = lasting.post(path, json={"model": lasting_model, "input_shapes": SHAPES, "webhook": webhook})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "invalid_webhook")
    assert problem["hint"]
    assert "word@" not in answer.text
    assert lasting.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    "webhook", [{}, {"secret": SECRET}, {"url": URL, "method": "GET"}, "https://x.example/", {"url": "x" * 3000}]
)
def test_what_is_no_webhook(lasting: TestClient, lasting_model: str, webhook: Any) -> None:
    assert create(lasting, lasting_model, webhook=webhook).json()["code"] == "invalid_request"


def test_an_admin_allows_private_addresses(tmp_path: Path) -> None:
    with (
        open_service(tmp_path, webhook_hosts="10.0.0.0/8, localhost:9000") as service,
        TestClient(service.app, headers=AUTHORIZED) as client,
    ):
        model = client.put("/v1/models", content=b"dynamic model").json()["id"]
        assert create(client, model, webhook={"url": "http://10.0.0.1/"}).status_code == 202
        assert create(client, model, webhook={"url": "http://localhost:9000/"}).status_code == 202
        assert create(client, model, webhook={"url": "http://localhost/"}).status_code == 400


def test_a_delivery_is_told_from_beginning_to_end(client: TestClient, service: Service, model: str) -> None:
    job = create(client, model, webhook={"url": URL}).json()["id"]

    def told() -> dict[str, Any]:
        answer: dict[str, Any] = client.get(f"/v1/jobs/{job}/deliveries").json()
        assert answer["url"] == URL
        return answer["deliveries"][0] if answer["deliveries"] else {}

    early = client.post(f"/v1/jobs/{job}/deliveries:resend")
    assert (told(), early.json()["code"]) == ({}, "job_not_finished")
    client.post(f"/v1/jobs/{job}:cancel")
    pending = told()
    assert (pending["state"], pending["attempts"], pending["last_status"]) == ("pending", 0, None)
    now = datetime.now(UTC)
    with service.database.transaction() as session:
        (due,) = webhooks.due(session, now=now, limit=10)
        claimed = webhooks.claim(session, due, now=now, seconds=60)
        assert claimed
        assert webhooks.note_failed(session, claimed, status=410, error="answered 410", next_attempt_at=None)
    given_up = told()
    assert (given_up["state"], given_up["last_status"], given_up["last_error"]) == ("given_up", 410, "answered 410")
    again = client.post(f"/v1/jobs/{job}/deliveries:resend")
    assert (again.status_code, again.json()["deliveries"][0]["state"]) == (202, "pending")
    with service.database.transaction() as session:
        (due,) = webhooks.due(session, now=datetime.now(UTC), limit=10)
        claimed = webhooks.claim(session, due, now=datetime.now(UTC), seconds=60)
        assert claimed
        webhooks.note_delivered(session, claimed, status=200, now=datetime.now(UTC))
    done = told()
    assert (done["id"], done["state"], done["attempts"]) == (pending["id"], "delivered", 2)
    assert (done["last_status"], done["last_error"], done["next_attempt_at"]) == (200, None, None)


def test_a_retried_job_tells_the_same_server(client: TestClient, service: Service, model: str) -> None:
    old = create(client, model, webhook={"url": URL, "secret": SECRET}).json()["id"]
    client.post(f"/v1/jobs/{old}:cancel")
    new = client.post(f"/v1/jobs/{old}:retry")
    assert SECRET not in new.text
    assert attached(service, new.json()["id"]) == (URL, SECRET)


def test_a_job_like_another_tells_the_same_server_unless_it_says_otherwise(
    client: TestClient, service: Service, model: str
) -> None:
    old = create(client, model, webhook={"url": URL, "secret": SECRET}).json()["id"]

    def like(**request: Any) -> dict[str, Any]:
        made: dict[str, Any] = client.post("/v1/jobs", json={"like": old, **request}).json()
        return made

    assert like()["webhook"] == {"url": URL, "secret": None}
    assert attached(service, like()["id"]) == (URL, SECRET)
    silent = like(webhook=None)
    assert (silent["webhook"], attached(service, silent["id"])) == (None, None)
    elsewhere = like(webhook={"url": "https://other.example.com/"})
    assert elsewhere["webhook"]["secret"] not in (None, SECRET)


def test_another_owners_server_is_not_called(client: TestClient, service: Service) -> None:
    ann, bob = callers.headers(service, owner="ann"), callers.headers(service, owner="bob")
    model = client.put("/v1/models", content=b"dynamic model", headers=ann).json()["id"]
    request = {"model": model, "input_shapes": SHAPES, "webhook": {"url": URL, "secret": SECRET}}
    job = client.post("/v1/jobs", json=request, headers=ann).json()["id"]
    copied = client.post("/v1/jobs", json={"like": job}).json()
    assert (copied["owner"], copied["webhook"], attached(service, copied["id"])) == ("local", None, None)
    for method, path in (("POST", ""), ("GET", f"/{job}/deliveries"), ("POST", f"/{job}/deliveries:resend")):
        answer = client.request(method, f"/v1/jobs{path}", json={"like": job} if not path else None, headers=bob)
        assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found"), path
    assert client.get(f"/v1/jobs/{job}/deliveries").json()["url"] == URL, "an admin sees everyone's"


def test_reading_deliveries_is_not_sending_them(client: TestClient, service: Service, job: str) -> None:
    reader = callers.headers(service, owner="local", scopes={"read"})
    assert client.get(f"/v1/jobs/{job}/deliveries", headers=reader).status_code == 200
    answer = client.post(f"/v1/jobs/{job}/deliveries:resend", headers=reader)
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
