"""Fusion of operators between DequantizeLinear and QuantizeLinear into quantized ones, by ONNX Runtime.

The pairs say where numbers are rounded; ONNX Runtime computes integers between them. Fused as it does it, a model is
then replaced by exactly these computations.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from tuner.engines.onnx import models, sessions
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.runtime import weights

_UNWANTED = (
    *("ConvActivationFusion", "GeluFusionL2", "GeluFusionL1", "LayerNormFusionL2", "LayerNormFusionL1"),
    *("SimplifiedLayerNormFusion", "FastGeluFusion", "BiasGeluFusion", "BiasSoftmaxFusion", "BiasDropoutFusion"),
    *("SkipLayerNormFusion", "EmbedLayerNormFusion", "AttentionFusion", "MatMulScaleFusion", "QuickGeluFusion"),
    *(
        "MatMulActivationFusion",
        "GemmActivationFusion",
        "MatMulAddFusion",
        "NhwcTransformer",
        "ConvAddActivationFusion",
    ),
    *("DynamicQuantizeMatMulFusion",),
)
"""Fusions into operators that no compiler supports."""


def apply(model: onnx.ModelProto) -> int:
    """Fuse quantized operators in place and return the number of fused ones; 0 without QuantizeLinear."""
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        return 0
    with tempfile.TemporaryDirectory(prefix="tunesmith-fuse-") as folder:
        target = Path(folder) / "fused.onnx"
        sessions.open_session(model, threads=1, level=sessions.EXTENDED, optimized=str(target), without=_UNWANTED)
        fused = models.read_optimized(target)
        weights.embed(fused)
    graphs.drop_unused_opsets(fused)
    del fused.graph.value_info[:]
    count = sum(node.op_type.startswith(("QLinear", "QGemm", "MatMulInteger")) for node in fused.graph.node)
    if count:
        model.CopyFrom(fused)
    return count
