from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.api.factories import AUTHORIZED, Service, make_service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = make_service(tmp_path)
    yield made
    made.database.close()


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    """A browser that is signed in."""
    headers = {**AUTHORIZED, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with TestClient(service.app, headers=headers, raise_server_exceptions=False) as client:
        yield client
