"""Profiles of ONNX Runtime and OpenVINO."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain import errors
from domain.profiles import Peak
from tests.support.tuner.engines.fixtures import Twin, start
from tuner.host.session import EngineSession
from tuner.results import profiles

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


def test_every_layer_of_openvino_is_timed_beside_the_nodes_of_onnx_runtime(
    reference: EngineSession, relay_twin: Twin, prepared: Path, inputs: list[Path], engine_logs: Path
) -> None:
    common = {"inputs": str(inputs[0]), "threads": 1, "repeat": 5}
    with start("openvino", engine_logs / "openvino.log") as session:
        found = session.request("profile", {"path": str(prepared), **common}, timeout=60)
        with pytest.raises(errors.EngineRequestFailed, match="cannot read"):
            session.request("profile", {"path": str(inputs[0]), **common}, timeout=60)
    layers = found["layers"]
    assert len({layer["name"] for layer in layers}) == len(layers)
    # A busy machine may delay a run of microseconds by many times; a wrong unit is wrong by a thousand.
    assert all(0 <= layer["seconds"] < 100 * found["seconds"] < 100 for layer in layers)
    [product] = [layer for layer in layers if layer["operator"] == "FullyConnected"]
    assert product["outputs"] == [[1, 5]]
    theirs = reference.request("profile", {"path": str(prepared), **common}, timeout=60)
    kernels = json.loads((relay_twin.untuned / "kernels.json").read_text())
    build = {"seconds": 1e-3, "layers": [{**kernel, "seconds": 1e-5} for kernel in kernels]}
    profile = profiles.make(
        build=build, reference=theirs, openvino=found, tasks=[], peak=Peak(flops=None), variant="untuned",
        compared_with="ONNX Runtime", threads=1, precision="f32",
    )  # fmt: skip
    of_product = next(each for each in profile.operators if any("Gemm" in node for node in each.nodes))
    assert f"FullyConnected {product['name']}" in of_product.layers
    convolutions = [each for each in profile.operators if any(node.startswith("Conv ") for node in each.nodes)]
    assert convolutions
    assert all(any("Convolution" in layer for layer in each.layers) for each in convolutions)
    seconds = sum(each.openvino_seconds or 0.0 for each in profile.operators)
    assert seconds + (profile.openvino_outside or 0.0) == pytest.approx(found["seconds"])
    assert sum(len(each.layers) for each in profile.operators) == len(layers)
