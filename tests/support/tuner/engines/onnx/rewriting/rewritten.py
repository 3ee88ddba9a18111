"""What a rewriting makes of small networks, told by a program in the onnx engine's interpreter."""

from __future__ import annotations

from typing import Any

from tests.support.tuner.engines.onnx import inside

_PROGRAM = """
import importlib
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

rewriting = importlib.import_module("tuner.engines.onnx.rewriting." + sys.argv[1])
rng = np.random.default_rng(0)

class Network:
    def __init__(self, shape, kind=TensorProto.FLOAT, opset=17):
        self.opset, self.shape, self.kind, self.nodes, self.weights, self.outputs = opset, shape, kind, [], [], []

    def weight(self, array):
        array = np.asarray(array)
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def random(self, *shape):
        return self.weight(rng.uniform(-1, 1, shape).astype(np.float32))

    def add(self, operator, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def model(self, *outputs):
        value = lambda name: helper.make_empty_tensor_value_info(name)
        source = helper.make_tensor_value_info("x", self.kind, self.shape)
        graph = helper.make_graph(self.nodes, "g", [source], [value(name) for name in outputs], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True)
        del inferred.graph.value_info[:]
        return inferred

def values(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)

def told_of(model, data=None):
    if data is None:
        shape = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
        data = rng.uniform(-1, 1, shape).astype(np.float32)
    before = values(model, {"x": data})
    count = rewriting.apply(model, 16)
    onnx.checker.check_model(model, full_check=True)
    after = values(model, {"x": data})
    assert [each.shape for each in before] == [each.shape for each in after]
    error = max(float(np.abs(a - b).max() / max(1e-6, np.abs(a).max())) for a, b in zip(before, after))
    return {"count": count, "error": error, "operators": [node.op_type for node in model.graph.node]}

"""


def told(rewriting: str, networks: str, *arguments: Any) -> list[dict[str, Any]]:
    """``{count, error, operators}`` of each model that ``networks`` gives to ``told_of`` in a list ``told``.

    ``error`` is ONNX Runtime's largest difference before and after, as a share of the largest output.
    """
    found: list[dict[str, Any]] = inside.run(_PROGRAM + networks, rewriting, *arguments)
    return found
