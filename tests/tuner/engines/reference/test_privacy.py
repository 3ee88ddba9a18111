"""What ONNX Runtime leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.engines.conftest import home
from tuner import catalogue, environments
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


def test_no_events_are_kept_for_its_makers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = catalogue.get("reference")
    python, somebody = environments.interpreter(spec, home()), tmp_path / "somebody"
    somebody.mkdir()
    monkeypatch.setenv("HOME", str(somebody))
    with EngineSession.start(spec, python, log_path=tmp_path / "log") as engine:
        assert engine.alive
    assert list(somebody.rglob("*")) == []
