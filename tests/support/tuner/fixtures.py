from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tuner.host.catalogue import EngineSpec
from tuner.host.session import EngineSession

MISBEHAVING = EngineSpec(
    name="misbehaving",
    module="tests.support.tuner.misbehaving_engine",
    requirements=Path("/nonexistent/requirements.txt"),
)

# A loaded machine is no reason to fail.
settings.register_profile("steady", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

Start = Callable[..., EngineSession]


@pytest.fixture(autouse=True)
def passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The misbehaving engine is told by its environment how to start."""
    monkeypatch.setenv("TUNESMITH_ENGINE_ENVIRONMENT", "TUNESMITH_TEST_*")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts misbehaving engines, and ends them with the test."""
    sessions = []

    def starter(**options: Any) -> EngineSession:
        options = {"log_path": tmp_path / "engine.log", "hello_timeout": 20.0, **options}
        session = EngineSession.start(MISBEHAVING, Path(sys.executable), **options)
        sessions.append(session)
        return session

    yield starter
    for session in sessions:
        session.kill()


@pytest.fixture
def engine(start: Start) -> EngineSession:
    return start()


@pytest.fixture
def no_child_left() -> Iterator[None]:
    """Whatever the test starts has ended when it ends; engines that other tests share may live on."""
    before = own_children()
    yield
    assert own_children() == before


def own_children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
