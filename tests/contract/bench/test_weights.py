"""Weights for networks that were published without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.tuner.engines.fixtures import home
from tuner.host import catalogue, environments

ROOT = Path(__file__).parents[3]

_SCRIPT = """
import sys, numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper
from bench import weights
shape = helper.make_tensor("w_shape", TensorProto.INT64, [4], [1000, 3, 3, 3])
value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.5])
nodes = [
    helper.make_node("ConstantOfShape", ["w_shape"], ["w"], value=value),
    helper.make_node("Conv", ["x", "w"], ["y"]),
    helper.make_node("GlobalAveragePool", ["y"], ["pooled"]),
    helper.make_node("Flatten", ["pooled"], ["flat"]),
    helper.make_node("Softmax", ["flat"], ["p"]),
]
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
w_shape = helper.make_tensor_value_info("w_shape", TensorProto.INT64, [4])
p = helper.make_tensor_value_info("p", TensorProto.FLOAT, [1, 1000])
graph = helper.make_graph(nodes, "g", [x, w_shape], [p], [shape])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3)
copy = onnx.ModelProto.FromString(model.SerializeToString())
first, second = weights.calm(weights.fill(copy)), weights.calm(weights.fill(model))
assert first.SerializeToString() == second.SerializeToString()
assert [node.op_type for node in first.graph.node][0] == "Conv"
assert [value.name for value in first.graph.input] == ["x"]
onnx.checker.check_model(first)
session = onnxruntime.InferenceSession(first.SerializeToString())
chances = session.run(None, {"x": np.random.default_rng(1).random((1, 3, 8, 8)).astype(np.float32)})[0]
assert 1e-4 < chances.max() < 0.5 and chances.std() > 1e-5
"""


@pytest.mark.engine
def test_weights_are_the_same_each_time_and_leave_no_shape_behind() -> None:
    python = environments.interpreter(catalogue.get("onnx"), home())
    done = subprocess.run([python, "-c", _SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
