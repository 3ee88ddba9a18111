"""One process of each engine for all engine tests, and the small network prepared for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Report, Variant
from domain.models import TensorSpec
from tests.support import models
from tuner.host import catalogue, environments
from tuner.host.session import EngineSession, Limits
from tuner.results.manifest import Manifest

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


def interpreter(engine: str) -> Path:
    return environments.interpreter(catalogue.get(engine), home())


def start(name: str, log: Path) -> EngineSession:
    """Start an engine that may write wherever tests do; ``log`` is in a folder made by ``tmp_path_factory``."""
    limits = Limits(writable=(str(log.parent.parent),))
    return EngineSession.start(catalogue.get(name), interpreter(name), log_path=log, limits=limits)


@pytest.fixture(scope="session")
def engine_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine-logs")


@pytest.fixture(scope="session")
def relay(engine_logs: Path) -> Iterator[EngineSession]:
    with start("relay", engine_logs / "relay.log") as session:
        yield session


@pytest.fixture(scope="session")
def relax(engine_logs: Path) -> Iterator[EngineSession]:
    with start("relax", engine_logs / "relax.log") as session:
        yield session


@pytest.fixture(scope="session")
def reference(engine_logs: Path) -> Iterator[EngineSession]:
    with start("onnx", engine_logs / "onnx.log") as session:
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


def workload(place: dict[str, Any], task: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The params of a round for a task that an engine extracted into a folder."""
    defined = {"task": str(folder / task["definition"])} if task.get("definition") else {}
    return {**place, "workload_key": task["workload_key"], **defined}


class Twin:
    """An engine that tunes, and what it makes of the small network, once for all tests."""

    def __init__(self, name: str, session: EngineSession, prepared: Path, folder: Path) -> None:
        self.name = name
        self.session = session
        self.target = f"llvm -mcpu={session.hello['mcpu']}"
        self._folder = folder
        self.place: dict[str, Any] = {"model": str(prepared), "target": self.target, "threads": 1}
        """The params that every request about the small network shares."""
        if name == "relax":
            self.place |= {"tuner": "metaschedule", "options": {}}
        self.definitions = folder / "definitions"

    @cached_property
    def tasks(self) -> list[dict[str, Any]]:
        params = {**self.place, "out_dir": str(self.definitions)}
        extracted: list[dict[str, Any]] = self.session.request("extract", params, timeout=120)["tasks"]
        return extracted

    @cached_property
    def untuned(self) -> Path:
        """The folder of an untuned build."""
        params = {**self.place, "tuner": None, "records": None, "out_dir": str(self._folder / "untuned")}
        self.session.request("compile", params, timeout=120)
        return self._folder / "untuned"

    def workload(self, task: dict[str, Any]) -> dict[str, Any]:
        """The params of a round for a task."""
        return workload(self.place, task, self.definitions)


def manifest(twin: Twin, **more: Any) -> Manifest:
    """The manifest of an untuned build of the small network, with what ``more`` says otherwise."""
    facts: dict[str, Any] = {
        "model_digest": "0" * 64, "model_name": "small", "variant": "untuned", "target": twin.target, "threads": 1,
        "device_key": "any", "toolchain": twin.session.hello["toolchain"], "precision": "f32", "created_by": "a test",
        "inputs": (TensorSpec(name="image", dtype="float32", shape=(1, 3, 16, 16)),),
        "outputs": (TensorSpec(name="scores", dtype="float32", shape=(1, 5)),),
    }  # fmt: skip
    return Manifest(**{**facts, **more})


@pytest.fixture(scope="session")
def relay_twin(relay: EngineSession, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return Twin("relay", relay, prepared, tmp_path_factory.mktemp("relay"))


@pytest.fixture(scope="session")
def relax_twin(relax: EngineSession, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return Twin("relax", relax, prepared, tmp_path_factory.mktemp("relax"))


@pytest.fixture(scope="session", params=["relay", "relax"])
def twin(request: pytest.FixtureRequest) -> Twin:
    found: Twin = request.getfixturevalue(f"{request.param}_twin")
    return found
