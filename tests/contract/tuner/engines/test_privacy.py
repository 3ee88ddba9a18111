"""What engines leave behind in the folder of whoever runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tuner.engines.fixtures import home
from tuner import catalogue, environments
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", sorted(catalogue.ENGINES))
def test_nothing_is_left_at_home(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime would keep events for its makers there, TVM a folder for downloads."""
    spec = catalogue.get(name)
    python, somebody = environments.interpreter(spec, home()), tmp_path / "somebody"
    somebody.mkdir()
    monkeypatch.setenv("HOME", str(somebody))
    with EngineSession.start(spec, python, log_path=tmp_path / "log") as engine:
        assert engine.alive
    assert list(somebody.rglob("*")) == []
