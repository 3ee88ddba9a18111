"""Static quantization with ONNX Runtime's quantizer, to standard operators that TVM also supports (QDQ).

Pairs of QuantizeLinear and DequantizeLinear precede convolutions and matrix products with constant weights, for which
there are int8 instructions. Weights are int8, symmetric, with one scale per output channel; activations are uint8 with
a zero point, since ``vpdpbusd`` multiplies unsigned by signed bytes. Results have no pairs: what stands between two
products is computed in float32, and each value is rounded once. ``sensitivity`` chooses the ranges and the layers.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import TensorsData, save_tensors_data

from tuner.engines.onnx import arrays, comparing, models, sensitivity, sessions
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.onnx.calibrating import Calibration, Ranges
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import weights

WORTHWHILE = ("Conv", "Gemm", "MatMul")
_OPSET = 13
"""First operator set whose DequantizeLinear supports per-channel scales."""
_HINT = "Use precision f32."
_OPTIONS = {
    "WeightSymmetric": True,
    "ActivationSymmetric": False,
    "OpTypesToExcludeOutputQuantization": list(WORTHWHILE),
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
    model = _with_scales_for_channels(models.read(path))
    chosen = [node for node in model.graph.node if _is_worthwhile(node, _constants(model.graph))]
    if not chosen:
        raise _refused("it has no convolution or matrix product with constant weights")
    _name_nodes(model.graph)
    layers = [node.name for node in chosen]
    gate = sensitivity.Gate(max_rel=max_rel, top1=top1, classifiers=comparing.of_graph(model.graph))
    with tempfile.TemporaryDirectory(prefix="tunesmith-quantize-") as folder:
        calibration = Calibration(model, list(dict.fromkeys(node.input[0] for node in chosen)), inputs, threads)
        attempts = _Attempts(model, inputs, gate, Path(folder), threads)
        found = sensitivity.choose(layers, calibration, attempts, seconds=seconds)
        attempts.write([layer for layer in layers if layer not in found.kept], found.ranges, Path(out_path))
    return {
        "quantized": Counter(node.op_type for node in chosen if node.name not in found.kept),
        "kept": list(found.kept),
        "ranges": found.method,
        "share": min(found.agreement.share, comparing.LARGEST),
    }


class _Attempts:
    """Quantizes layers of a model, and compares the result with the model."""

    def __init__(
        self, model: onnx.ModelProto, inputs: Sequence[str], gate: sensitivity.Gate, folder: Path, threads: int
    ) -> None:
        self._inputs, self._gate, self._folder, self._threads = inputs, gate, folder, threads
        self._source, self._target = folder / "model.onnx", folder / "quantized.onnx"
        weights.write(model, self._source)

    def __call__(self, layers: Collection[str], ranges: Ranges, most: int | None) -> sensitivity.Agreement:
        self.write(layers, ranges, self._target)
        every = len(self._inputs)
        count = every if most is None else min(most, every)
        # Spread evenly: the rows of a file are often sorted by class.
        places = [number * every // count for number in range(count)]
        actual = self._run(self._target, [self._inputs[place] for place in places])
        return sensitivity.Agreement.of([self._expected[place] for place in places], actual, self._gate)

    def write(self, layers: Collection[str], ranges: Ranges, path: Path) -> None:
        cache, made = self._folder / "ranges.json", self._folder / "made.onnx"
        save_tensors_data(TensorsData(CalibrationMethod.MinMax, dict(ranges)), cache)
        _quantize(self._source, made, cache, list(layers))
        # Its large weights stay in that file, which must outlive it.
        quantized = models.read(str(made))
        _keep_standard(quantized)
        weights.write(quantized, path)

    @cached_property
    def _expected(self) -> list[Arrays]:
        return self._run(self._source, self._inputs)

    def _run(self, path: Path, inputs: Sequence[str]) -> list[Arrays]:
        # Not in integers of ONNX Runtime's kernels, whose sums saturate on some CPUs.
        session = sessions.open_session(str(path), threads=self._threads, level=sessions.NONE)
        return [sessions.run(session, arrays.load(each)) for each in inputs]


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
            op_types_to_quantize=list(WORTHWHILE),
            nodes_to_quantize=list(names),
            calibrate_method=CalibrationMethod.MinMax,
            calibration_cache_path=cache,
            extra_options=_OPTIONS,
        )
    except Exception as error:
        # The quantizer raises any exception for a model that it does not expect.
        raise _refused(f"{type(error).__name__}: {str(error)[:1000]}") from error


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
    return (
        node.op_type in WORTHWHILE
        and len(node.input) > 1
        and node.input[1] in constants
        and node.input[0] not in constants
    )


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
