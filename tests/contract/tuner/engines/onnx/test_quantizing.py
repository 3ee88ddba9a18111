from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.onnx import inside
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def _quantize(reference: EngineSession, model: Path, inputs: list[Path], out: Path) -> dict[str, Any]:
    params = {"path": str(model), "inputs": [str(path) for path in inputs], "out_path": str(out)}
    return reference.request("quantize", params, timeout=120)


def test_products_with_constant_weights_are_quantized(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    made = _quantize(reference, prepared, inputs, tmp_path / "q.onnx")
    assert made == {"quantized": {"Conv": 2, "Gemm": 1}}
    program = """
import numpy as np, onnx
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model)
tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
makers = {node.output[0]: node for node in model.graph.node}
told = []
for node in model.graph.node:
    if node.op_type == "Conv":
        data, kernel = makers[node.input[0]], makers[node.input[1]]
        told.append([data.op_type, str(tensors[data.input[2]].dtype), str(tensors[kernel.input[0]].dtype),
                     len(tensors[kernel.input[1]]), len(tensors[kernel.input[0]]),
                     bool((tensors[kernel.input[2]] == 0).all())])
told = {"convs": told, "domains": sorted({entry.domain for entry in model.opset_import}),
        "inputs": [value.name for value in model.graph.input]}
"""
    told = inside.run(program, tmp_path / "q.onnx")
    assert told["convs"] == [
        ["DequantizeLinear", "uint8", "int8", channels, channels, True] for channels in (8, 16)
    ]  # a scale for each output channel, and zero points of zero
    assert told["inputs"] == ["image"]
    assert told["domains"] == [""]


def test_the_quantized_network_is_near_the_network(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    _quantize(reference, prepared, inputs[:2], tmp_path / "q.onnx")
    run = {"path": str(tmp_path / "q.onnx"), "inputs": str(inputs[2]), "outputs": str(tmp_path / "a.npz"), "threads": 1}
    reference.request("run", run, timeout=60)
    more = {"precision": "int8", "model": str(prepared)}
    [output] = asking.compare_with_model(reference, prepared, inputs[2], tmp_path / "a.npz", **more)
    assert output["passed"]
    assert (output["rows"], output["agreed"]) == (1, 1)
    assert 1e-5 < output["max_rel"] < 0.1


def test_a_network_without_products_is_refused(reference: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(models.unsupported_operators())
    with pytest.raises(errors.EngineRequestFailed, match="no convolution or matrix product") as caught:
        _quantize(reference, tmp_path / "m.onnx", [], tmp_path / "q.onnx")
    assert caught.value.engine_code == "unsupported_dtype"
    assert caught.value.hint
