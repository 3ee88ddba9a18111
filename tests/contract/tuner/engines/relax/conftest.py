from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines.fixtures import start
from tuner.session import EngineSession

THREADS = 1


@pytest.fixture(scope="session")
def relax(engine_logs: Path) -> Iterator[EngineSession]:
    with start("relax", engine_logs / "relax.log") as session:
        yield session


@pytest.fixture(scope="session")
def target(relax: EngineSession) -> str:
    return f"llvm -mcpu={relax.hello['mcpu']}"


@pytest.fixture(scope="session")
def place(prepared: Path, target: str) -> dict[str, Any]:
    """The params that every request about the small network shares."""
    return {"model": str(prepared), "target": target, "threads": THREADS, "tuner": "metaschedule", "options": {}}


@pytest.fixture(scope="session")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("definitions")


@pytest.fixture(scope="session")
def tasks(relax: EngineSession, place: dict[str, Any], definitions: Path) -> list[dict[str, Any]]:
    params = {**place, "out_dir": str(definitions)}
    extracted: list[dict[str, Any]] = relax.request("extract", params, timeout=120)["tasks"]
    return extracted


@pytest.fixture(scope="session")
def untuned(relax: EngineSession, place: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untuned-relax")
    relax.request("compile", {**place, "tuner": None, "records": None, "out_dir": str(folder)}, timeout=120)
    return folder
