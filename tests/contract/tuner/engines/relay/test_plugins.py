"""Plugins of the relay engine: templates that AutoTVM tunes, those that fail, and the one of the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.contract.tuner.engines.test_plugins import agrees_with_numpy, started_with_plugin
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import interpreter, start
from tuner.engines.protocol import plugins
from tuner.host import catalogue, environments
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def extended(engine_logs: Path) -> Iterator[EngineSession]:
    with started_with_plugin("relay", engine_logs) as session:
        yield session


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(models.plugin_operators())
    return tmp_path / "model.onnx"


@pytest.fixture
def params(place: dict[str, Any], model: Path) -> dict[str, Any]:
    return {**place, "model": str(model), "records": None}


def test_an_operator_with_a_template_is_tuned(
    extended: EngineSession, reference: EngineSession, params: dict[str, Any], tmp_path: Path
) -> None:
    [task] = extended.request("extract", params, timeout=60)["tasks"]
    assert task["name"] == "example_wave.cpu"
    assert task["space_size"] == 12
    assert task["flop"] == 2 * 6 * 32
    round_ = {**params, "workload_key": task["workload_key"]}
    _, trials = asking.tune(extended, round_, tmp_path / "j", trials=20)
    assert len(trials) == 12
    assert {trial["error"] for trial in trials} == {None}
    (tmp_path / "records").write_text(trials[-1]["schedule"] + "\n")
    [line] = asking.build(extended, params, tmp_path / "tuned", records=str(tmp_path / "records"))["records"]
    assert json.loads(line)["config"] == json.loads(trials[-1]["schedule"])["config"]
    assert agrees_with_numpy(extended, reference, tmp_path / "tuned")


def test_an_engine_does_not_start_without_its_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def register(registry): raise OSError('no licence')"
    monkeypatch.setenv(plugins.VARIABLE, _module(tmp_path, monkeypatch, source))
    with pytest.raises(errors.EngineStartFailed) as caught:
        start("relay", tmp_path / "engine.log")
    assert "broken_plugin" in caught.value.details["log_tail"]
    assert "no licence" in caught.value.details["log_tail"]


def test_a_converter_that_fails_is_told_from_a_model_that_is_wrong(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
def register(registry):
    for operator in ("Wave", "Relu", "Halves"):
        registry.add_converter(operator, lambda inputs, attributes: attributes["absent"], domain="example.domain")
"""
    monkeypatch.setenv(plugins.VARIABLE, _module(tmp_path, monkeypatch, source))
    with start("relay", tmp_path / "engine.log") as engine:
        refused = asking.refusal(engine, "check", {"model": str(model)})
    assert "example.domain::Wave" in refused.message
    assert (refused.engine_code, refused.details["plugin"]) == ("plugin_failed", "broken_plugin")


def test_the_example_of_the_documentation_works(
    place: dict[str, Any], reference: EngineSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = (catalogue.ROOT / "docs" / "how-to" / "custom-operators.md").read_text()
    source = document.split("```python\n")[1].split("```")[0]
    monkeypatch.setenv(plugins.VARIABLE, _module(tmp_path, monkeypatch, source, "my_plugin"))
    (tmp_path / "model.onnx").write_bytes(models.plugin_operators(functions=True))
    with start("relay", tmp_path / "engine.log") as engine:
        params = {**place, "model": str(tmp_path / "model.onnx"), "records": None}
        [task] = engine.request("extract", params, timeout=60)["tasks"]
        assert task["name"] == "wave.cpu"
        engine.request("compile", {**params, "out_dir": str(tmp_path / "b")}, timeout=120)
        assert agrees_with_numpy(engine, reference, tmp_path / "b")


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str = "broken_plugin") -> str:
    """An importable module of that source in the engine's environment."""
    (folder / "site").mkdir()
    (folder / "site" / f"{name}.py").write_text(source)
    # As if it were installed there; PYTHONPATH itself is the host's to set.
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{folder}/site" exec "{interpreter("relay")}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv(environments.variable(catalogue.get("relay")), str(wrapper))
    return name
