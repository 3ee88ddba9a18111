from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from api.middleware.credentials import LOCAL
from api.models import uploading
from domain import errors
from domain.models import ModelFacts, ModelFormat
from domain.ports import Canceled
from storage import models
from tests.support.api.factories import AUTHORIZED, Service, open_service
from tests.support.api.live import serving
from tests.support.waiting import until


def stored(service: Service) -> list[str]:
    return [path.name for path in service.home.glob("blobs/*/*") if path.parent.name != "incoming"]


def test_an_upload_answers_with_what_the_model_is(client: TestClient, service: Service) -> None:
    answer = client.put("/v1/models?name=net", content=b"some bytes")
    assert answer.status_code == 201
    model = answer.json()
    assert model["digest"] == hashlib.sha256(b"some bytes").hexdigest()
    assert (model["name"], model["bytes"], model["opset"], model["operators"]) == ("net", 10, 17, {"Conv": 2})
    assert model["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 3, None, 8]}]
    assert service.blobs.path(model["digest"]).read_bytes() == b"some bytes"


def test_the_same_bytes_again_are_the_same_model(client: TestClient) -> None:
    first = client.put("/v1/models?name=one", content=b"bytes").json()
    again = client.put("/v1/models?name=two", content=b"bytes")
    assert again.status_code == 200
    assert again.json() == first
    assert len(client.get("/v1/models").json()["models"]) == 1


def test_operators_that_nobody_knows_are_refused_by_name(client: TestClient, service: Service) -> None:
    answer = client.put("/v1/models", content=b"unknown operators")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "unsupported_operators")
    assert problem["details"]["operators"] == {"my.domain::Twist": 2}
    assert "docs/how-to/custom-operators.md" in problem["hint"]
    assert stored(service) == []


def test_operators_that_no_engine_imports_are_warned_of(client: TestClient) -> None:
    model = client.put("/v1/models", content=b"matrix").json()
    [warning] = model["warnings"]
    assert (warning["code"], warning["details"]) == ("unsupported_operators", {"operators": {"Det": 2}})
    assert "Det (2×)" in warning["message"]
    assert "docs/how-to/custom-operators.md" in warning["hint"]
    assert client.get(f"/v1/models/{model['id']}").json() == model
    assert client.put("/v1/models?format=irmodule", content=b"matrix module").json()["warnings"] == []
    assert client.put("/v1/models", content=b"some bytes").json()["warnings"] == []


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"bad bytes", 422, "invalid_model"),
        (b"", 422, "invalid_model"),
        # A missing engine is not the uploader's fault.
        (b"no engine", 503, "engine_not_installed"),
    ],
)
def test_rejected_bytes_are_not_kept(
    client: TestClient, service: Service, content: bytes, status: int, code: str
) -> None:
    answer = client.put("/v1/models", content=content)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["hint"]
    assert stored(service) == []


def test_rejected_bytes_stay_that_may_be_another_services(client: TestClient, service: Service) -> None:
    service.blobs.claim("d-another")
    assert client.put("/v1/models", content=b"bad bytes").status_code == 422
    assert stored(service) != []


def test_bytes_that_a_failed_upload_removed_are_no_model(client: TestClient, service: Service) -> None:
    state = service.app.state
    known, inspect = state.services, state.services.inspect

    def remove(path: Path, model_format: ModelFormat, _canceled: object) -> ModelFacts:
        facts: ModelFacts = inspect(path, model_format)
        path.unlink()
        return facts

    state.services = dataclasses.replace(known, inspect=remove)
    answer = client.put("/v1/models", content=b"some bytes")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert client.get("/v1/models").json()["models"] == []
    state.services = known
    assert client.put("/v1/models", content=b"some bytes").status_code == 201


def test_an_upload_is_not_read_on_when_its_caller_leaves(client: TestClient, service: Service) -> None:
    given_up: list[float] = []
    services, inspect = service.app.state.services, service.app.state.services.inspect

    def watched(path: Path, model_format: ModelFormat, canceled: Callable[[], bool]) -> ModelFacts:
        try:
            facts: ModelFacts = inspect(path, model_format, canceled)
        except Canceled:
            given_up.append(time.monotonic())
            raise
        return facts

    service.app.state.services = dataclasses.replace(services, inspect=watched)
    with serving(service) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.put(f"{url}/v1/models", headers=AUTHORIZED, timeout=0.5, content=b"slow to read")
        left = time.monotonic()
        until(lambda: bool(given_up), seconds=5)
        assert given_up[0] < left + 2
        until(lambda: stored(service) == [], seconds=5)
        assert httpx.put(f"{url}/v1/models", headers=AUTHORIZED, content=b"some bytes").status_code == 201


def test_an_upload_that_is_rejected_takes_nothing_from_another_of_the_same_bytes(service: Service) -> None:
    services = service.app.state.services

    def reject_the_first(path: Path, model_format: ModelFormat, _canceled: object) -> ModelFacts:
        model, _ = uploading.keep(services, LOCAL, "other", [path.read_bytes()], model_format)
        raise errors.InvalidModel(f"the same bytes became model {model.id} meanwhile")

    rejecting = dataclasses.replace(services, inspect=reject_the_first)
    with pytest.raises(errors.InvalidModel):
        uploading.keep(rejecting, LOCAL, "net", [b"some bytes"])
    with service.database.reading() as session:
        digests = [model.digest for model in models.page(session, limit=10)[0]]
    assert [service.blobs.path(digest).read_bytes() for digest in digests] == [b"some bytes"]


def test_too_many_bytes_are_refused_announced_or_not(service: Service, client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    with open_service(service.home, max_model_bytes=1000) as small, TestClient(small.app, headers=AUTHORIZED) as client:
        announced = client.put("/v1/models", content=b"x" * 1001)
        streamed = client.put("/v1/models", content=chunks())
        fits = client.put("/v1/models", content=b"x" * 1000)
    for answer in (announced, streamed):
        assert (answer.status_code, answer.json()["code"]) == (413, "blob_too_large")
        assert answer.json()["details"] == {"limit_bytes": 1000}
    assert fits.status_code == 201
    assert len(stored(service)) == 1
    assert list(service.home.glob("blobs/incoming/*")) == []


def test_a_name_is_text_for_people(client: TestClient) -> None:
    for name in ("", "a\nb", "x" * 201):
        answer = client.put("/v1/models", params={"name": name}, content=b"bytes")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), name
