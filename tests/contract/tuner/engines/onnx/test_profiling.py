from __future__ import annotations

from pathlib import Path

import pytest

from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def test_onnx_runtime_tells_of_every_node(reference: EngineSession, prepared: Path, inputs: list[Path]) -> None:
    params = {"path": str(prepared), "inputs": str(inputs[0]), "threads": 1, "repeat": 3}
    found = reference.request("profile", params, timeout=60)
    layers = found["layers"]
    assert len({layer["name"] for layer in layers}) == len(layers)
    assert all(0 <= layer["seconds"] < found["seconds"] < 1 for layer in layers)
    first = next(layer for layer in layers if layer["operator"] == "Conv")
    assert (first["inputs"][0], first["inputs"][1][1:]) == ([1, 3, 16, 16], [3, 3, 3])
    channels, *area = first["outputs"][0][1:]
    assert first["flop"] == 2 * channels * area[0] * area[1] * 27
    [product] = [layer for layer in layers if layer["operator"] == "Gemm"]
    assert product["flop"] == 2 * 5 * product["inputs"][0][1]
