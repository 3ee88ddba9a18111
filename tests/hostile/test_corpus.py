"""Hostile files before the engine that inspects uploads: each a typed refusal, whatever it does to its reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from domain import errors
from tests.hostile import corpus
from tests.hostile.corpus import Hostile
from tests.tuner.engines.conftest import home
from tuner import catalogue, environments
from tuner.inspection import Inspector
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


class Reader:
    """One engine for many files, and another after each that ends it: a process for each would take a minute."""

    def __init__(self, log: Path) -> None:
        self.spec, self.log = catalogue.get("reference"), log
        self.limits = Inspector(spec=self.spec, python=Path()).limits(0)
        self.engine: EngineSession | None = None

    def reason(self, path: Path) -> str | None:
        """Of the refusal; None for none, the name of the error for a reader that ended."""
        if self.engine is None or not self.engine.alive:
            python = environments.interpreter(self.spec, home())
            self.engine = EngineSession.start(self.spec, python, log_path=self.log, limits=self.limits)
        try:
            self.engine.request("inspect", {"path": str(path)}, timeout=60)
        except errors.EngineRequestFailed as error:
            short = len(error.message) < 2000
            return str(error.details["reason"]) if short else "a long message"
        except errors.EngineCrashed as error:
            return type(error).__name__
        return None


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    found = Reader(tmp_path_factory.mktemp("hostile") / "engine.log")
    yield found
    if found.engine is not None:
        found.engine.close()


@pytest.mark.parametrize("hostile", corpus.corpus(), ids=lambda hostile: hostile.name)
def test_it_is_refused_for_what_it_is(reader: Reader, hostile: Hostile, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(hostile.content)
    reason = reader.reason(path)
    if hostile.fate == corpus.LATER:
        assert reason is None
    else:
        assert reason == hostile.reason if hostile.reason else reason


@pytest.mark.parametrize("name", ["strides_of_zero", "constant_of_40_gb", "external_absolute", "text"])
def test_an_upload_of_it_is_an_invalid_model(name: str, tmp_path: Path) -> None:
    content = next(hostile.content for hostile in corpus.corpus() if hostile.name == name)
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    spec = catalogue.get("reference")
    with pytest.raises(errors.InvalidModel):
        Inspector(spec=spec, python=environments.interpreter(spec, home()), home=home()).inspect(path)
