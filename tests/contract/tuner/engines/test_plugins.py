"""The example plugin in both engines that compile: the same model, other code, the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, start
from tuner.engines.protocol import plugins
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

# Importable in every environment from the checkout; installed ones are named by their package.
EXAMPLE = "tests.support.plugins.example_plugin.example_plugin"
OPERATORS = {f"example.domain::{name}": 1 for name in ("Halves", "Relu", "Wave")}
WITH_NUMPY = """
import sys
import numpy as np
given = np.load(sys.argv[1])
soft = np.tanh(3 * np.sin(given["x"] @ given["w"])) / 2
np.savez(sys.argv[2], up=np.maximum(soft, 0), down=np.maximum(-soft, 0))
"""


def started_with_plugin(name: str, logs: Path) -> EngineSession:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.VARIABLE, EXAMPLE)
        return start(name, logs / f"{name}-plugins.log")


@pytest.fixture(scope="module")
def extended(twin: Twin, engine_logs: Path) -> Iterator[EngineSession]:
    with started_with_plugin(twin.name, engine_logs) as session:
        yield session


@pytest.fixture(scope="module")
def extending(engine_logs: Path) -> Iterator[EngineSession]:
    """ONNX Runtime's engine, where others have a plugin."""
    with started_with_plugin("onnx", engine_logs) as session:
        yield session


@pytest.fixture
def params(twin: Twin, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "model.onnx").write_bytes(models.plugin_operators())
    return {**twin.place, "model": str(tmp_path / "model.onnx"), "records": None}


def agrees_with_numpy(engine: EngineSession, reference: EngineSession, bundle: Path) -> bool:
    folder = bundle.parent
    specs = [{"name": "x", "dtype": "float32", "shape": [6, 32]}, {"name": "w", "dtype": "float32", "shape": [32]}]
    inputs = asking.make_inputs(reference, specs, folder, seed=1)
    asking.inside("onnx", WITH_NUMPY, inputs, folder / "expected.npz")
    actual = asking.run(engine, bundle, inputs, folder / "actual.npz")
    outputs = asking.compare(reference, folder / "expected.npz", actual)
    assert {output["output"] for output in outputs} == {"up", "down"}
    return all(output["passed"] for output in outputs)


def test_hello_names_the_plugin_and_the_toolchain_tells_its_version(extended: EngineSession, twin: Twin) -> None:
    [plugin] = extended.hello["plugins"]
    assert (plugin["name"], plugin["version"]) == (EXAMPLE, "1.0")
    version, _, local = extended.hello["toolchain"]["tvm"].partition("+plugins.")
    assert version == twin.session.hello["toolchain"]["tvm"]
    assert len(local) == 8
    assert twin.session.hello["plugins"] == []


def test_a_network_of_plugin_operators_compiles_and_is_right(
    extended: EngineSession, reference: EngineSession, params: dict[str, Any], tmp_path: Path
) -> None:
    assert extended.request("check", {"model": params["model"]}, timeout=60)["operators"] == OPERATORS
    extended.request("compile", {**params, "out_dir": str(tmp_path / "b")}, timeout=120)
    assert agrees_with_numpy(extended, reference, tmp_path / "b")


def test_without_the_plugin_its_operators_are_named(twin: Twin, params: dict[str, Any]) -> None:
    refused = asking.refusal(twin.session, "check", {"model": params["model"]})
    assert (refused.engine_code, refused.details["operators"]) == ("unsupported_operators", OPERATORS)


@pytest.mark.parametrize("with_plugin", [True, False])
def test_a_model_that_defines_its_operators_agrees_with_the_reference(
    extended: EngineSession,
    extending: EngineSession,
    twin: Twin,
    reference: EngineSession,
    tmp_path: Path,
    with_plugin: bool,
) -> None:
    """With the plugin its operators are used; without it what the model says they are."""
    engine = extended if with_plugin else twin.session
    preparing = extending if with_plugin else reference
    prepared, specs = asking.prepare(preparing, models.plugin_operators(functions=True), tmp_path)
    known = engine.request("check", {"model": str(prepared)}, timeout=60)["operators"]
    assert (known == OPERATORS) == with_plugin
    asking.build(engine, twin.place, tmp_path / "b", model=str(prepared))
    inputs = asking.make_inputs(reference, specs, tmp_path, seed=2)
    assert asking.agrees(engine, tmp_path / "b", reference, prepared, inputs, tmp_path)
