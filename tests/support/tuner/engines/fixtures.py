"""One process of each engine for all engine tests, and the small network prepared for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Report, Variant
from tests.support import models
from tuner import catalogue, environments
from tuner.session import EngineSession

Call = Callable[..., dict[str, Any]]
NOTHING_TUNED = Report(
    timings={},
    verifications={},
    published=Variant.UNTUNED,
    speedup_over_untuned=1.0,
    speedup_over_reference=None,
    summary="Nothing was tuned.",
)


def home() -> Path:
    return Path(os.environ.get("TUNESMITH_HOME") or Path.home() / ".local" / "share" / "tunesmith")


def start(name: str, log: Path) -> EngineSession:
    spec = catalogue.get(name)
    return EngineSession.start(spec, environments.interpreter(spec, home()), log_path=log)


@pytest.fixture(scope="session")
def engine_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine-logs")


@pytest.fixture(scope="session")
def relay(engine_logs: Path) -> Iterator[EngineSession]:
    with start("relay", engine_logs / "relay.log") as session:
        yield session


@pytest.fixture(scope="session")
def reference(engine_logs: Path) -> Iterator[EngineSession]:
    with start("reference", engine_logs / "reference.log") as session:
        yield session


@pytest.fixture(scope="session")
def prepared(reference: EngineSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small network with a 1×3×16×16 image, its static specs left out."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "model.onnx").write_bytes(models.small_network())
    params = {
        "path": str(folder / "model.onnx"),
        "input_shapes": {"image": [1, 3, 16, 16]},
        "out_path": str(folder / "prepared.onnx"),
    }
    reference.request("prepare", params, timeout=60)
    return folder / "prepared.onnx"


@pytest.fixture(scope="session")
def inputs(reference: EngineSession, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three seeded files for the prepared small network."""
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 16, 16]}
    folder = tmp_path_factory.mktemp("inputs")
    made = reference.request("make_inputs", {"inputs": [spec], "seeds": [0, 1, 2], "out_dir": str(folder)}, timeout=60)
    return [Path(path) for path in made["paths"]]
