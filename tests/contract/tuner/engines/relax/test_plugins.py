"""The example plugin in the relax engine: the same model, other code, the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import start
from tuner.engines.protocol import plugins
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

EXAMPLE = "tests.support.plugins.example_plugin.example_plugin"
OPERATORS = {f"example.domain::{name}": 1 for name in ("Halves", "Relu", "Wave")}


@pytest.fixture(scope="module")
def extended(engine_logs: Path) -> Iterator[EngineSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.VARIABLE, EXAMPLE)
        session = start("relax", engine_logs / "relax-plugins.log")
    with session:
        yield session


def test_hello_names_the_plugin_and_the_toolchain_tells_its_version(extended: EngineSession) -> None:
    assert [plugin["name"] for plugin in extended.hello["plugins"]] == [EXAMPLE]
    assert "+plugins." in extended.hello["toolchain"]["tvm"]


@pytest.mark.parametrize("with_plugin", [True, False])
def test_a_model_that_defines_its_operators_agrees_with_the_reference(
    request: pytest.FixtureRequest, reference: EngineSession, tmp_path: Path, with_plugin: bool
) -> None:
    engine: EngineSession = request.getfixturevalue("extended" if with_plugin else "relax")
    prepared, specs = asking.prepare(reference, models.plugin_operators(functions=True), tmp_path)
    known = engine.request("check", {"model": str(prepared)}, timeout=60)["operators"]
    assert (known == OPERATORS) == with_plugin
    target = f"llvm -mcpu={engine.hello['mcpu']}"
    build: dict[str, Any] = {"model": str(prepared), "target": target, "threads": 1, "records": None}
    engine.request("compile", {**build, "out_dir": str(tmp_path / "b")}, timeout=200)
    inputs = asking.make_inputs(reference, specs, tmp_path, seed=2)
    actual = asking.run(engine, tmp_path / "b", inputs, tmp_path / "a.npz")
    outputs = asking.compare_with_model(reference, prepared, inputs, actual)
    assert [output["passed"] for output in outputs] == [True, True]


def test_without_the_plugin_its_operators_are_named(relax: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(models.plugin_operators())
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relax.request("check", {"model": str(tmp_path / "model.onnx")}, timeout=60)
    assert caught.value.engine_code == "unsupported_operators"
    assert caught.value.details["operators"] == OPERATORS
