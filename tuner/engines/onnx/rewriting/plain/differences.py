"""Addition instead of subtraction of constants behind convolutions and products.

Keras exports batch normalization as a subtraction, a product and a sum. ONNX Runtime folds the latter two into a
convolution, but not the first, which is before them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from tuner.engines.onnx import models
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.runtime import weights

_FOLDING = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def applies(graph: onnx.GraphProto) -> bool:
    return next(_found(graph), None) is not None


def apply(model: onnx.ModelProto) -> int:
    """Replace subtractions and return their number; the result has the same bits."""
    names, found = graphs.Names(model.graph), list(_found(model.graph))
    for node, constant in found:
        node.op_type = "Add"
        node.input[1] = names.new("negated")
        model.graph.initializer.append(numpy_helper.from_array(-weights.array(constant), node.input[1]))
    graphs.drop_unused(model.graph)
    return len(found)


def _found(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.TensorProto]]:
    """Yield subtractions with the constants that they subtract."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    folding = {
        node.output[0] for node in graph.node if node.op_type in _FOLDING and node.domain in models.STANDARD_DOMAINS
    }
    for node in graph.node:
        if node.op_type != "Sub" or node.input[0] not in folding or node.input[1] not in constants:
            continue
        constant = constants[node.input[1]]
        if np.issubdtype(onnx.helper.tensor_dtype_to_np_dtype(constant.data_type), np.floating):
            yield node, constant
