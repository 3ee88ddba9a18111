"""Models of a single operator, so that an operator is tuned, verified and published like any other model."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from tuner.engines.onnx import models
from tuner.engines.protocol.messages import Json

OPSET, IR_VERSION = 17, 8
"""Old enough for every engine's importer."""
_SEED = 0
_FED_TWICE = ("batch_matmul",)
_NODES = {"matmul": "MatMul", "batch_matmul": "MatMul", "dense": "Gemm", "conv2d_transpose": "ConvTranspose"}


def make(params: Json) -> Json:
    """Write the model to ``out_path``; the same description always gives the same bytes.

    ``shapes`` has two entries: the first is the input, the second a weight (for ``batch_matmul`` also an input).
    """
    first, second = params["shapes"]
    kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(params["dtype"]))
    inputs = [_value(first, kind, params["shapes"][first])]
    weights: list[TensorProto] = []
    if params["operator"] in _FED_TWICE:
        inputs.append(_value(second, kind, params["shapes"][second]))
    else:
        weights.append(_weight(second, params["dtype"], params["shapes"][second]))
    node = helper.make_node(_NODES.get(params["operator"], "Conv"), [first, second], ["y"], **_attributes(params))
    graph = helper.make_graph([node], "operator", inputs, [_value("y", kind, params["output"])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    models.check(model)
    Path(params["out_path"]).write_bytes(model.SerializeToString(deterministic=True))
    return {}


def _value(name: str, kind: int, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _weight(name: str, dtype: str, shape: list[int]) -> TensorProto:
    """Return normal values, scaled so that outputs are about as large as inputs."""
    values = numpy.random.default_rng(_SEED).standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(dtype), name)


def _attributes(params: Json) -> Json:
    given = params["attributes"]
    if params["operator"] == "dense":
        return {"transB": 1}
    if not given:
        return {}
    return {
        "strides": given["strides"],
        "pads": given["padding"],
        "dilations": given["dilation"],
        "group": given["groups"][0],
    }
