"""The example plugin in the relay engine: import, compile, tune, and compare with numpy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import home, start
from tuner import catalogue, environments
from tuner.engines.protocol import plugins
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

# Importable in every environment from the checkout; installed ones are named by their package.
EXAMPLE = "tests.support.plugins.example_plugin.example_plugin"
WITH_NUMPY = """
import sys
import numpy as np
given = np.load(sys.argv[1])
soft = np.tanh(3 * np.sin(given["x"] @ given["w"])) / 2
np.savez(sys.argv[2], up=np.maximum(soft, 0), down=np.maximum(-soft, 0))
"""


@pytest.fixture(scope="module")
def extended(engine_logs: Path) -> Iterator[EngineSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.VARIABLE, EXAMPLE)
        session = start("relay", engine_logs / "relay-plugins.log")
    with session:
        yield session


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(models.plugin_operators())
    return tmp_path / "model.onnx"


@pytest.fixture
def params(place: dict[str, Any], model: Path) -> dict[str, Any]:
    return {**place, "model": str(model), "records": None}


def _agrees_with_numpy(engine: EngineSession, reference: EngineSession, bundle: Path) -> bool:
    folder = bundle.parent
    specs = [{"name": "x", "dtype": "float32", "shape": [6, 32]}, {"name": "w", "dtype": "float32", "shape": [32]}]
    inputs = asking.make_inputs(reference, specs, folder, seed=1)
    asking.inside("reference", WITH_NUMPY, inputs, folder / "expected.npz")
    actual = asking.run(engine, bundle, inputs, folder / "actual.npz")
    outputs = asking.compare(reference, folder / "expected.npz", actual)
    assert {output["output"] for output in outputs} == {"up", "down"}
    return all(output["passed"] for output in outputs)


def test_hello_names_the_plugin_and_the_toolchain_tells_its_version(
    extended: EngineSession, relay: EngineSession
) -> None:
    [plugin] = extended.hello["plugins"]
    assert (plugin["name"], plugin["version"]) == (EXAMPLE, "1.0")
    version, _, local = extended.hello["toolchain"]["tvm"].partition("+plugins.")
    assert version == relay.hello["toolchain"]["tvm"]
    assert len(local) == 8
    assert relay.hello["plugins"] == []


def test_a_network_of_plugin_operators_compiles_and_is_right(
    extended: EngineSession, reference: EngineSession, params: dict[str, Any], tmp_path: Path
) -> None:
    operators = extended.request("check", {"model": params["model"]}, timeout=60)["operators"]
    assert operators == {f"example.domain::{name}": 1 for name in ("Wave", "Relu", "Halves")}
    extended.request("compile", {**params, "out_dir": str(tmp_path / "b")}, timeout=120)
    assert _agrees_with_numpy(extended, reference, tmp_path / "b")


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
    build = {**params, "records": str(tmp_path / "records"), "out_dir": str(tmp_path / "tuned")}
    [line] = extended.request("compile", build, timeout=120)["records"]
    assert json.loads(line)["config"] == json.loads(trials[-1]["schedule"])["config"]
    assert _agrees_with_numpy(extended, reference, tmp_path / "tuned")


def test_without_the_plugin_its_operators_are_named(relay: EngineSession, model: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("check", {"model": str(model)}, timeout=60)
    assert caught.value.engine_code == "unsupported_operators"
    assert set(caught.value.details["operators"]) == {f"example.domain::{name}" for name in ("Wave", "Relu", "Halves")}


@pytest.mark.parametrize("with_plugin", [True, False])
def test_a_model_that_defines_its_operators_is_verified_by_the_reference(
    extended: EngineSession,
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    tmp_path: Path,
    with_plugin: bool,
) -> None:
    """With the plugin its operators are used; without it what the model says they are."""
    (tmp_path / "model.onnx").write_bytes(models.plugin_operators(functions=True))
    paths = {"path": str(tmp_path / "model.onnx"), "out_path": str(tmp_path / "prepared.onnx")}
    prepared = reference.request("prepare", {**paths, "input_shapes": {}}, timeout=60)
    assert prepared["operators"] == {f"example.domain::{name}": 1 for name in ("Halves", "Relu", "Wave")}
    engine = extended if with_plugin else relay
    params = {**place, "model": str(tmp_path / "prepared.onnx"), "records": None}
    names = {task["name"] for task in engine.request("extract", params, timeout=60)["tasks"]}
    assert ("example_wave.cpu" in names) == with_plugin
    engine.request("compile", {**params, "out_dir": str(tmp_path / "b")}, timeout=120)
    made = {"inputs": prepared["inputs"], "seeds": [2], "out_dir": str(tmp_path)}
    [inputs] = reference.request("make_inputs", made, timeout=60)["paths"]
    given = {"inputs": inputs, "threads": 1}
    reference.request("run", {**given, "path": paths["out_path"], "outputs": str(tmp_path / "e.npz")}, timeout=60)
    engine.request("run", {**given, "bundle": str(tmp_path / "b"), "outputs": str(tmp_path / "a.npz")}, timeout=60)
    pair = {"expected": str(tmp_path / "e.npz"), "actual": str(tmp_path / "a.npz")}
    outputs = reference.request("compare", pair, timeout=60)["outputs"]
    assert [output["passed"] for output in outputs] == [True, True]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("VALUE = 1", "register"),
        ("def register(registry): raise OSError('no licence')", "no licence"),
    ],
)
def test_an_engine_does_not_start_without_its_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    monkeypatch.setenv(plugins.VARIABLE, _module(tmp_path, monkeypatch, source))
    with pytest.raises(errors.EngineStartFailed) as caught:
        start("relay", tmp_path / "engine.log")
    assert "broken_plugin" in caught.value.details["log_tail"]
    assert told in caught.value.details["log_tail"]


def test_a_converter_that_fails_is_told_from_a_model_that_is_wrong(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
def register(registry):
    for operator in ("Wave", "Relu", "Halves"):
        registry.add_converter(operator, lambda inputs, attributes: attributes["absent"], domain="example.domain")
"""
    monkeypatch.setenv(plugins.VARIABLE, _module(tmp_path, monkeypatch, source))
    engine = start("relay", tmp_path / "engine.log")
    with engine, pytest.raises(errors.EngineRequestFailed, match=r"example\.domain::Wave") as caught:
        engine.request("check", {"model": str(model)}, timeout=60)
    assert caught.value.engine_code == "plugin_failed"
    assert caught.value.details["plugin"] == "broken_plugin"


def test_the_example_of_the_documentation_works(
    place: dict[str, Any], reference: EngineSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = (catalogue.ROOT / "docs" / "custom-operators.md").read_text()
    source = document.split("```python\n")[1].split("```")[0]
    monkeypatch.setenv(plugins.VARIABLE, _module(tmp_path, monkeypatch, source, "my_plugin"))
    (tmp_path / "model.onnx").write_bytes(models.plugin_operators(functions=True))
    with start("relay", tmp_path / "engine.log") as engine:
        params = {**place, "model": str(tmp_path / "model.onnx"), "records": None}
        [task] = engine.request("extract", params, timeout=60)["tasks"]
        assert task["name"] == "wave.cpu"
        engine.request("compile", {**params, "out_dir": str(tmp_path / "b")}, timeout=120)
        assert _agrees_with_numpy(engine, reference, tmp_path / "b")


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str = "broken_plugin") -> str:
    """An importable module of that source in the engine's environment."""
    (folder / "site").mkdir()
    (folder / "site" / f"{name}.py").write_text(source)
    # As if it were installed there; PYTHONPATH itself is the host's to set.
    python = environments.interpreter(catalogue.get("relay"), home())
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{folder}/site" exec "{python}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv(environments.variable(catalogue.get("relay")), str(wrapper))
    return name
