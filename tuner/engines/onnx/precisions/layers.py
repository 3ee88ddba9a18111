"""Products of a network that a narrower precision may compute, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Collection

import onnx

from tuner.engines.onnx import models
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import weights

PRODUCTS = ("Conv", "Gemm", "MatMul")
_OPSET = 13
"""First operator set whose DequantizeLinear supports per-channel scales, and whose Cast supports bfloat16."""


def refused(done: str, reason: str) -> EngineFailure:
    """Return the error of a model that cannot be ``done``: quantized, say."""
    return EngineFailure("unsupported_dtype", f"the model cannot be {done}: {reason}", hint="Use precision f32.")


def converted(model: onnx.ModelProto, done: str) -> onnx.ModelProto:
    """Return the model in an operator set that has narrower numbers.

    Raises EngineFailure ``unsupported_dtype``, as ``refused`` makes it, if ONNX cannot convert it.
    """
    if models.opset(model) >= _OPSET:
        return model
    whole = graphs.copy(model)
    weights.embed(whole)
    try:
        made = onnx.version_converter.convert_version(whole, _OPSET)
        models.check(made)
    except Exception as error:
        # The converter raises RuntimeError, ValueError and IndexError.
        reason = f"opset {models.opset(model)} cannot be converted to opset {_OPSET}: {str(error)[:500]}"
        raise refused(done, reason) from error
    return made


def operations(model: onnx.ModelProto, chosen: Collection[onnx.NodeProto]) -> dict[str, float]:
    """Return the multiplications of each of these products, by the names of the nodes; 1 where shapes are unknown."""
    shapes = graphs.shapes(model)
    return {node.name: _multiplications(node, shapes) or 1.0 for node in chosen}


def _multiplications(node: onnx.NodeProto, shapes: graphs.Shapes) -> float:
    data, weights, result = (shapes.get(name) for name in (*node.input[:2], node.output[0]))
    if not data or not weights or not result:
        return 0.0
    if node.op_type == "Conv":
        return float(math.prod(result) * math.prod(weights[1:]))
    transposed = node.op_type == "Gemm" and graphs.attribute(node, "transA", 0)
    return float(math.prod(result) * data[0 if transposed else -1])
