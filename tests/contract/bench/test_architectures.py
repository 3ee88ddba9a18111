"""Export of models for the zoo: what of it needs ONNX Runtime alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.tuner.engines.fixtures import home
from tuner.host import catalogue, environments

ROOT = Path(__file__).parents[3]

_SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from bench import architectures

folder = Path(sys.argv[1])
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 6, 6])

def model(values):
    weights = [numpy_helper.from_array(values.astype(np.float32), "w")]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

def refused(values):
    try:
        architectures.require_telling(model(values), inputs)
    except ValueError as error:
        return str(error)

inputs = {"x": ("float32", [1, 4, 8, 8])}
good = np.random.default_rng(0).standard_normal((8, 4, 3, 3))
assert refused(good) is None
assert "near-uniform" in refused(good * 0)
assert "not finite" in refused(good * np.inf)
onnx.save(model(good), folder / "float.onnx")
for scheme, operator in (("qdq", "QuantizeLinear"), ("qoperator", "QLinearConv"), ("dynamic", "ConvInteger")):
    order = {"inputs": inputs, "scheme": scheme, "of": str(folder / "float.onnx")}
    (folder / "order.json").write_text(json.dumps(order))
    for name in ("first", "second"):
        architectures.main(str(folder / "order.json"), str(folder / f"{name}.onnx"))
    assert (folder / "first.onnx").read_bytes() == (folder / "second.onnx").read_bytes(), scheme
    assert operator in {node.op_type for node in onnx.load(folder / "first.onnx").graph.node}
"""


@pytest.mark.engine
def test_a_model_is_quantized_the_same_each_time_and_one_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    python = environments.interpreter(catalogue.get("onnx"), home())
    command = [python, "-c", _SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
