"""Conversion of old operator sets to the oldest one that plain operators are written for."""

from __future__ import annotations

import onnx
import onnx.version_converter

from tuner.engines.onnx import models
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import OLDEST_OPSET
from tuner.engines.runtime import weights


def apply(model: onnx.ModelProto) -> int:
    """Convert a model of an older operator set and return 1, else 0."""
    if models.opset(model) >= OLDEST_OPSET:
        return 0
    weights.embed(model)
    model.CopyFrom(onnx.version_converter.convert_version(model, OLDEST_OPSET))
    graphs.lift_constants(model)
    del model.graph.value_info[:]
    return 1
