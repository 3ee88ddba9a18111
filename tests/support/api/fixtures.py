from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from process import logs
from process.logs import LogFormat, LogLevel
from tests.support.api.factories import AUTHORIZED, SHAPES, Service, open_service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path) as made:
        yield made


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(service.app, headers=AUTHORIZED, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Of a service that the tests of a module share: for requests that are refused."""
    with (
        open_service(tmp_path_factory.mktemp("lasting")) as made,
        TestClient(made.app, headers=AUTHORIZED, raise_server_exceptions=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def lasting_model(lasting: TestClient) -> str:
    """As ``model`` is."""
    return str(lasting.put("/v1/models?name=net", content=b"dynamic model").json()["id"])


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What this process logs, as JSON."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    logs.set_up(LogFormat.JSON, LogLevel.DEBUG, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("api").setLevel(logging.NOTSET)
    logging.captureWarnings(False)


@pytest.fixture
def model(client: TestClient) -> str:
    """A model whose one input x is [batch, 3, ?, 8]."""
    return str(client.put("/v1/models?name=net", content=b"dynamic model").json()["id"])


@pytest.fixture
def job(client: TestClient, model: str) -> str:
    answer = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES})
    return str(answer.json()["id"])
