from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.worker.routes.service import Service, interpreters, serving


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all; its jobs meet in its records, so each test has models of its own."""
    home = tmp_path_factory.mktemp("routes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNESMITH_LOCK_FOLDER", str(home / "locks"))
        for name, value in interpreters().items():
            patch.setenv(name, value)
        with serving(home) as service:
            yield service


@pytest.fixture
def service(shared: Service) -> Iterator[Service]:
    yield shared
    shared.hear = lambda _engine, _kind, _data: None
