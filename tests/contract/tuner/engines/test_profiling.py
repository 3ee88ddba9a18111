"""What relay and ONNX Runtime say of where the time goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tuner.engines.fixtures import Twin
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def test_relay_tells_of_every_fused_operator(relay: EngineSession, relay_twin: Twin, inputs: list[Path]) -> None:
    params = {"bundle": str(relay_twin.untuned), "inputs": str(inputs[0]), "threads": 1, "repeat": 3}
    layers = relay.request("profile", params, timeout=60)["layers"]
    assert any("conv2d" in layer["name"] for layer in layers)
    assert all(0 < layer["seconds"] < 1 and "float32" in layer["shapes"] for layer in layers)


def test_onnx_runtime_tells_of_every_node(reference: EngineSession, prepared: Path, inputs: list[Path]) -> None:
    params = {"path": str(prepared), "inputs": str(inputs[0]), "threads": 1, "repeat": 3}
    layers = reference.request("profile", params, timeout=60)["layers"]
    assert {"Conv", "Gemm"} & {layer["operator"] for layer in layers}
    assert len({layer["name"] for layer in layers}) == len(layers)
    assert all(0 <= layer["seconds"] < 1 for layer in layers)
