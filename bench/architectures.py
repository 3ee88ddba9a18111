"""Export of a network with seeded weights to ONNX: ``python -m bench.architectures ORDER.json OUT.onnx``.

The order is that of ``bench.zoo.Exported`` or ``bench.zoo.Quantized``. Requires the environment of
``requirements/architectures.txt``. The same order gives the same bytes. A model whose outputs are not finite, hardly
vary, or do not depend on the input is refused: any compilation of it would look right.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

OPSET = 17
_LEAST_SPREAD = 1e-3
"""Minimum standard deviation of an output, and minimum change by another input, relative to its largest magnitude."""
_INTEGERS = 100
"""Exclusive upper bound of integer inputs, such as token ids."""
_CALIBRATIONS = 8

Inputs = Mapping[str, tuple[str, list[int]]]
Arrays = dict[str, Any]


def main(order_path: str, out_path: str) -> None:
    order = json.loads(Path(order_path).read_text())
    if "scheme" in order:
        quantize(order["of"], out_path, scheme=order["scheme"], inputs=order["inputs"])
    else:
        export(order, out_path)
    require_telling(onnx.load(out_path), order["inputs"])


def inputs_of(inputs: Inputs, seed: int) -> Arrays:
    """Return normal values for floating-point inputs and small numbers for integer ones."""
    generator = np.random.default_rng(seed)
    return {
        name: generator.integers(0, _INTEGERS, shape).astype(dtype)
        if np.issubdtype(np.dtype(dtype), np.integer)
        else generator.standard_normal(shape).astype(dtype)
        for name, (dtype, shape) in inputs.items()
    }


def export(order: Mapping[str, Any], out_path: str) -> None:
    """Write an architecture of timm, or of ``bench.networks``, with weights of ``order["seed"]``."""
    import torch

    torch.set_num_threads(1)
    # The fused attention of nn.MultiheadAttention has no ONNX operator.
    torch.backends.mha.set_fastpath_enabled(False)
    module = _build(order["library"], order["architecture"]).eval()
    with torch.no_grad():
        set_weights(module, order["seed"])
    given = tuple(torch.from_numpy(array) for array in inputs_of(order["inputs"], seed=0).values())
    with torch.no_grad(), warnings.catch_warnings():
        # The tracer warns of every shape that it makes constant, and of its own age.
        warnings.simplefilter("ignore")
        count = len(_tensors(module(*given)))
        torch.onnx.export(
            module, given, out_path, dynamo=False, opset_version=OPSET, input_names=list(order["inputs"]),
            output_names=[f"output{position}" if position else "output" for position in range(count)],
        )  # fmt: skip


def _build(library: str, architecture: str) -> Any:
    if library == "timm":
        import timm

        return timm.create_model(architecture, pretrained=False, exportable=True)
    from bench import networks

    return networks.BUILDERS[architecture]()


def _tensors(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def set_weights(module: Any, seed: int) -> None:
    """Set all parameters and batch-norm statistics from one seed, so that signals neither vanish nor explode.

    Kernels are normal with He et al.'s variance (ICCV 2015), 2 / fan-in, other matrices with 1 / fan-in; scales are
    uniform in [0.8, 1.2), biases normal with deviation 0.1; batch-norm means are near 0 and variances near 1. Zeros
    that training would fill, such as the last scale of a residual branch, are filled too.
    """
    import torch

    generator = np.random.default_rng(seed)
    for name, parameter in sorted(module.named_parameters()):
        parameter.copy_(torch.from_numpy(_values(generator, name, tuple(parameter.shape))))
    for name, buffer in sorted(module.named_buffers()):
        if name.endswith("running_mean"):
            buffer.copy_(torch.from_numpy(generator.normal(0, 0.1, tuple(buffer.shape))))
        elif name.endswith("running_var"):
            buffer.copy_(torch.from_numpy(generator.uniform(0.8, 1.2, tuple(buffer.shape))))


def _values(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Any:
    last = name.rsplit(".", 1)[-1]
    if len(shape) < 2:
        is_scale = "bias" not in last
        return generator.uniform(0.8, 1.2, shape) if is_scale else generator.normal(0, 0.1, shape)
    if "pos" in last or "token" in last or "relative" in name:
        return generator.normal(0, 0.2, shape)
    gain = 2 if len(shape) > 2 else 1
    if "embed" in name and len(shape) == 2:
        return generator.normal(0, 1, shape)
    return generator.normal(0, np.sqrt(gain / np.prod(shape[1:])), shape)


def quantize(path: str, out_path: str, *, scheme: str, inputs: Inputs) -> None:
    """Quantize a model of the zoo with ONNX Runtime: ``qdq``, ``qoperator`` (static) or ``dynamic``."""
    from onnxruntime import quantization

    if scheme == "dynamic":
        quantization.quantize_dynamic(path, out_path, weight_type=quantization.QuantType.QUInt8)
        return
    quantization.quantize_static(
        path,
        out_path,
        _reader(quantization, inputs),
        quant_format={"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}[scheme],
        per_channel=scheme == "qdq",
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def _reader(quantization: Any, inputs: Inputs) -> Any:
    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left: Iterator[Arrays] = (inputs_of(inputs, seed) for seed in range(_CALIBRATIONS))

        def get_next(self) -> Arrays | None:
            return next(self._left, None)

    return Reader()


def require_telling(model: Any, inputs: Inputs) -> None:
    """Raise ValueError if the outputs on two inputs say nothing about whether a compilation is right."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    first, second = (session.run(names, inputs_of(inputs, seed)) for seed in (0, 1))
    changed = False
    for name, one, other in zip(names, first, second, strict=True):
        if one.dtype.kind != "f":
            continue
        if not one.size:
            raise ValueError(f"{name} is empty")
        if not np.isfinite(one).all():
            raise ValueError(f"{name} is not finite")
        largest = float(np.abs(one).max())
        if not float(one.std()) > _LEAST_SPREAD * largest:
            raise ValueError(f"{name} is near-uniform: {one.std()} of {largest}")
        changed |= one.shape != other.shape or float(np.abs(one - other).max()) > _LEAST_SPREAD * largest
    if not changed:
        raise ValueError("the outputs do not depend on the inputs")


if __name__ == "__main__":
    main(*sys.argv[1:])
