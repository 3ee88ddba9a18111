"""Static quantization with ONNX Runtime's quantizer, to standard operators that TVM also supports (QDQ).

Pairs of QuantizeLinear and DequantizeLinear surround convolutions and matrix products with constant weights, for which
there are int8 instructions. Weights are int8, symmetric, with one scale per output channel; activations are uint8 with
a zero point, since ``vpdpbusd`` multiplies unsigned by signed bytes. An engine may compute the operators between two
quantized ones in int8 or in float32.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

from tuner.engines.onnx import arrays, models
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import weights

WORTHWHILE = ("Conv", "Gemm", "MatMul")
_OPSET = 13
"""First operator set whose DequantizeLinear supports per-channel scales."""
_HINT = "Use precision f32."
_OPTIONS = {"WeightSymmetric": True, "ActivationSymmetric": False}


def quantize(path: str, inputs: Sequence[str], out_path: str) -> Json:
    """Write the quantized model to ``out_path``; its inputs and outputs are those of the model.

    ``inputs`` are ``.npz`` files whose runs determine the range of every activation. ``quantized`` in the result counts
    the operators that got pairs. Raises EngineFailure ``unsupported_dtype`` if there are none or the model cannot be
    quantized.
    """
    model = _with_scales_for_channels(models.read(path))
    chosen = [node for node in model.graph.node if _is_worthwhile(node, _constants(model.graph))]
    if not chosen:
        raise _refused("it has no convolution or matrix product with constant weights")
    _name_nodes(model.graph)
    with tempfile.TemporaryDirectory(prefix="tunesmith-quantize-") as folder:
        source, target = Path(folder) / "model.onnx", Path(folder) / "quantized.onnx"
        weights.write(model, source)
        _run(source, target, inputs, [node.name for node in chosen])
        quantized = models.read(str(target))
        _keep_standard(quantized)
        weights.write(quantized, Path(out_path))
    return {"quantized": Counter(node.op_type for node in chosen)}


def _run(source: Path, target: Path, inputs: Sequence[str], names: Sequence[str]) -> None:
    # The quantizer logs advice for other models through the root logger.
    logging.getLogger().setLevel(logging.ERROR)
    try:
        quantize_static(
            source,
            target,
            _Inputs(inputs),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(WORTHWHILE),
            nodes_to_quantize=list(names),
            calibrate_method=CalibrationMethod.MinMax,
            extra_options=_OPTIONS,
        )
    except EngineFailure:
        raise
    except Exception as error:
        # The quantizer raises any exception for a model that it does not expect.
        raise _refused(f"{type(error).__name__}: {str(error)[:1000]}") from error


class _Inputs(CalibrationDataReader):
    def __init__(self, paths: Sequence[str]) -> None:
        self._left: Iterator[str] = iter(paths)

    def get_next(self) -> Any:
        path = next(self._left, None)
        return None if path is None else arrays.load(path)


def _with_scales_for_channels(model: onnx.ModelProto) -> onnx.ModelProto:
    if models.opset(model) >= _OPSET:
        return model
    weights.embed(model)
    try:
        converted = onnx.version_converter.convert_version(model, _OPSET)
        models.check(converted)
    except Exception as error:
        # The converter raises RuntimeError, ValueError and IndexError.
        raise _refused(
            f"opset {models.opset(model)} cannot be converted to opset {_OPSET}: {str(error)[:500]}"
        ) from error
    return converted


def _constants(graph: onnx.GraphProto) -> set[str]:
    produced = {node.output[0] for node in graph.node if node.op_type == "Constant"}
    return {tensor.name for tensor in graph.initializer} | produced


def _is_worthwhile(node: Any, constants: set[str]) -> bool:
    return node.op_type in WORTHWHILE and len(node.input) > 1 and node.input[1] in constants


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a unique name: the quantizer selects nodes by name, which models need not have."""
    taken: set[str] = set()
    for place, node in enumerate(graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{place}"
        taken.add(node.name)


def _keep_standard(model: onnx.ModelProto) -> None:
    """Remove unused operator sets, which importers would check."""
    used = {node.domain for node in model.graph.node}
    kept = [entry for entry in model.opset_import if entry.domain in models.STANDARD_DOMAINS or entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _refused(reason: str) -> EngineFailure:
    return EngineFailure("unsupported_dtype", f"the model cannot be quantized: {reason}", hint=_HINT)
