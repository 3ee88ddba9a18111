from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.support.api.factories import AUTHORIZED, Service, open_service
from tests.support.api.fixtures import service
from tests.support.dashboard import seeding, variety
from tests.support.dashboard.seeding import Seeded
from tests.support.dashboard.variety import Various

__all__ = ["service"]


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    """A browser that is signed in."""
    headers = {**AUTHORIZED, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with TestClient(service.app, headers=headers, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def model(client: TestClient) -> str:
    """A model whose one input x is [batch, 3, ?, 8]."""
    return str(client.put("/v1/models?name=net.onnx", content=b"dynamic model").json()["id"])


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Seeded]]:
    """Jobs in every state, for tests that only look."""
    with open_service(tmp_path_factory.mktemp("full"), worker_alive_seconds=3600) as service:
        yield service, seeding.seed(service, trials=3)


@pytest.fixture
def browser(full: tuple[Service, Seeded]) -> TestClient:
    """Signed in, with jobs in every state to look at."""
    return TestClient(full[0].app, headers={**AUTHORIZED, "Accept": "text/html"})


@pytest.fixture(scope="session")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Various]]:
    """One model tuned in several ways on a fleet of several kinds, for tests that only look."""
    with open_service(tmp_path_factory.mktemp("varied")) as service:
        yield service, variety.add(service)


@pytest.fixture
def various(varied: tuple[Service, Various]) -> Various:
    return varied[1]


@pytest.fixture
def looking(varied: tuple[Service, Various]) -> TestClient:
    """A signed-in browser that changes nothing."""
    return TestClient(varied[0].app, headers={**AUTHORIZED, "Accept": "text/html"})
