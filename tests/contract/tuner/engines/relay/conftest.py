from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines.fixtures import Twin


@pytest.fixture(scope="session")
def target(relay_twin: Twin) -> str:
    return relay_twin.target


@pytest.fixture(scope="session")
def place(relay_twin: Twin) -> dict[str, Any]:
    return relay_twin.place


@pytest.fixture(scope="session")
def tasks(relay_twin: Twin) -> list[dict[str, Any]]:
    return relay_twin.tasks


@pytest.fixture(scope="session")
def untuned(relay_twin: Twin) -> Path:
    return relay_twin.untuned
