from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.session import EngineSession

THREADS = 1


@pytest.fixture(scope="session")
def target(relay: EngineSession) -> str:
    return f"llvm -mcpu={relay.hello['mcpu']}"


@pytest.fixture(scope="session")
def place(prepared: Path, target: str) -> dict[str, Any]:
    """The params that every request about the small network shares."""
    return {"model": str(prepared), "target": target, "threads": THREADS}


@pytest.fixture(scope="session")
def tasks(relay: EngineSession, place: dict[str, Any]) -> list[dict[str, Any]]:
    extracted: list[dict[str, Any]] = relay.request("extract", place, timeout=120)["tasks"]
    return extracted


@pytest.fixture(scope="session")
def untuned(relay: EngineSession, place: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untuned")
    relay.request("compile", {**place, "records": None, "out_dir": str(folder)}, timeout=120)
    return folder
