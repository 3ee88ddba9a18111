"""What relay and ONNX Runtime say of where the time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.session import EngineSession

pytestmark = pytest.mark.engine


def test_relay_tells_of_every_fused_operator(
    relay: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    build: dict[str, Any] = {"model": str(prepared), "target": f"llvm -mcpu={relay.hello['mcpu']}", "threads": 1}
    relay.request("compile", {**build, "records": None, "out_dir": str(tmp_path / "built")}, timeout=120)
    params = {"bundle": str(tmp_path / "built"), "inputs": str(inputs[0]), "threads": 1, "repeat": 3}
    layers = relay.request("profile", params, timeout=60)["layers"]
    assert any("conv2d" in layer["name"] for layer in layers)
    assert all(0 < layer["seconds"] < 1 and "float32" in layer["shapes"] for layer in layers)


def test_onnx_runtime_tells_of_every_node(reference: EngineSession, prepared: Path, inputs: list[Path]) -> None:
    params = {"path": str(prepared), "inputs": str(inputs[0]), "threads": 1, "repeat": 3}
    layers = reference.request("profile", params, timeout=60)["layers"]
    assert {"Conv", "Gemm"} & {layer["operator"] for layer in layers}
    assert len({layer["name"] for layer in layers}) == len(layers)
    assert all(0 <= layer["seconds"] < 1 for layer in layers)
