"""Static quantization with ONNX Runtime's quantizer, to standard operators that TVM also supports (QDQ).

Pairs of QuantizeLinear and DequantizeLinear precede convolutions without groups and matrix products with constant
weights, for which there are int8 instructions. Weights are int8, symmetric, with one scale per output channel;
activations are uint8 with a zero point, since ``vpdpbusd`` multiplies unsigned by signed bytes. Results have no pairs:
what stands between two products is computed in float32, and each value is rounded once. ``sensitivity`` chooses the
ranges and the layers.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import TensorsData, save_tensors_data

from tuner.engines.onnx import models
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.precisions import calibrating, layers, sensitivity
from tuner.engines.onnx.precisions.calibrating import Calibration, Ranges
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import weights

_DONE = "quantized"
_OPTIONS = {
    "WeightSymmetric": True,
    "ActivationSymmetric": False,
    "OpTypesToExcludeOutputQuantization": list(layers.PRODUCTS),
    # In float32 a bias is exact, and no weight has to give way to the range of its integers.
    "QuantizeBias": False,
    "QDQDisableWeightAdjustForInt32Bias": True,
}


def quantize(
    path: str,
    inputs: Sequence[str],
    out_path: str,
    *,
    threads: int,
    seconds: float,
    max_rel: float | None = None,
    top1: float | None = None,
) -> Json:
    """Write the quantized model to ``out_path``; its inputs and outputs are those of the model.

    ``inputs`` are ``.npz`` files whose runs determine the range of every activation, and which layers stay in float32
    so that the outputs agree within ``max_rel`` and ``top1`` (see ``AccuracyGate``); finding out how much each layer
    affects them ends after ``seconds``. In the result, ``quantized`` counts the operators that got pairs, ``kept``
    names those that did not, ``ranges`` is the method of ``calibrating``, and ``share`` the largest error on the
    calibration inputs as a share of the limit. Raises EngineFailure ``unsupported_dtype`` if there are no such
    operators or the model cannot be quantized.
    """
    model = layers.converted(models.read(path), _DONE)
    constants = _constants(model.graph)
    chosen = [node for node in model.graph.node if _is_worthwhile(node, constants)]
    if not chosen:
        raise layers.refused(_DONE, "it has no convolution without groups and no matrix product with constant weights")
    graphs.name_nodes(model.graph)
    gate = sensitivity.gate_of(model, max_rel, top1)
    with tempfile.TemporaryDirectory(prefix="tunesmith-quantize-") as folder:
        source = Path(folder) / "model.onnx"
        weights.write(model, source)
        write = _Writer(source)
        calibration = Calibration(model, list(dict.fromkeys(node.input[0] for node in chosen)), inputs, threads)
        methods = {method: partial(calibration.ranges, method) for method in calibrating.METHODS}
        attempts = sensitivity.Attempts(source, inputs, gate, write, threads)
        found = sensitivity.choose(layers.operations(model, chosen), methods, attempts, seconds=seconds)
        write([node.name for node in chosen if node.name not in found.kept], found.ranges, Path(out_path))
    return {
        "quantized": Counter(node.op_type for node in chosen if node.name not in found.kept),
        "kept": list(found.kept),
        "ranges": found.method,
        "share": min(found.agreement.share, comparing.LARGEST),
    }


class _Writer:
    """Writes the model in a file with some of its layers quantized."""

    def __init__(self, source: Path) -> None:
        self._source, self._made, self._cache = (source, *map(source.with_name, ("made.onnx", "ranges.json")))

    def __call__(self, names: Collection[str], ranges: Ranges, path: Path) -> None:
        save_tensors_data(TensorsData(CalibrationMethod.MinMax, dict(ranges)), self._cache)
        _quantize(self._source, self._made, self._cache, list(names))
        # Its large weights stay in that file, which must outlive it.
        quantized = models.read(str(self._made))
        graphs.drop_unused_opsets(quantized)
        weights.write(quantized, path)


def _quantize(source: Path, target: Path, cache: Path, names: Sequence[str]) -> None:
    # The quantizer logs advice for other models through the root logger.
    logging.getLogger().setLevel(logging.ERROR)
    try:
        quantize_static(
            source,
            target,
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(layers.PRODUCTS),
            nodes_to_quantize=list(names),
            calibrate_method=CalibrationMethod.MinMax,
            calibration_cache_path=cache,
            extra_options=_OPTIONS,
        )
    except Exception as error:
        # The quantizer raises any exception for a model that it does not expect.
        raise layers.refused(_DONE, f"{type(error).__name__}: {str(error)[:1000]}") from error


def _constants(graph: onnx.GraphProto) -> set[str]:
    produced = {node.output[0] for node in graph.node if node.op_type == "Constant"}
    return {tensor.name for tensor in graph.initializer} | produced


def _is_worthwhile(node: Any, constants: set[str]) -> bool:
    return (
        node.op_type in layers.PRODUCTS
        and len(node.input) > 1
        and node.input[1] in constants
        and node.input[0] not in constants
        and graphs.attribute(node, "group", 1) == 1
    )
