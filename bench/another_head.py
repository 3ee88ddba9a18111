"""``python -m bench.another_head IN OUT``: the same network with another last layer; runs where onnx is.

What people do to a published network who train its last layer for labels of their own: every other layer is shared.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import numpy_helper

_LABELS = 10


def widen(model: onnx.ModelProto, labels: int = _LABELS) -> onnx.ModelProto:
    """Give the last ``MatMul`` seeded float32 weights for ``labels`` outputs, and the ``Add`` after it a bias.

    Raises StopIteration when the model does not end so.
    """
    generator = np.random.default_rng(0)
    product = next(node for node in reversed(model.graph.node) if node.op_type == "MatMul")
    total = next(node for node in model.graph.node if node.op_type == "Add" and product.output[0] in node.input)
    weights, bias = (_constant(model, node) for node in (product, total))
    features = numpy_helper.to_array(weights).shape[0]
    _fill(weights, generator.normal(0, 0.1, (features, labels)))
    _fill(bias, generator.normal(0, 0.1, labels))
    for value in (*model.graph.output, *model.graph.value_info):
        sizes = value.type.tensor_type.shape.dim
        if value in model.graph.output and sizes:
            sizes[-1].dim_value = labels
    del model.graph.value_info[:]
    return model


def _constant(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.TensorProto:
    made = {each.output[0]: each.attribute[0].t for each in model.graph.node if each.op_type == "Constant"}
    made |= {tensor.name: tensor for tensor in model.graph.initializer}
    return next(made[name] for name in node.input if name in made)


def _fill(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))


if __name__ == "__main__":
    onnx.save(widen(onnx.load(sys.argv[1])), sys.argv[2])
