from __future__ import annotations

from typing import Any

import pytest

from tests.support.tuner.engines.fixtures import Twin


@pytest.fixture(scope="session")
def target(relax_twin: Twin) -> str:
    return relax_twin.target


@pytest.fixture(scope="session")
def place(relax_twin: Twin) -> dict[str, Any]:
    return relax_twin.place


@pytest.fixture(scope="session")
def tasks(relax_twin: Twin) -> list[dict[str, Any]]:
    return relax_twin.tasks
