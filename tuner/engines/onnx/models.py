"""Reading of ONNX files and description of their inputs and outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from tuner.engines.onnx import external, ordering, vetting
from tuner.engines.onnx.vetting import refuse, shown
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import importing, weights

STANDARD_DOMAINS = ("", "ai.onnx")
_SIGNATURES = (
    (0, b"PK\x03\x04", "a zip archive (torch.save writes such files, too)"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\x89HDF", "an HDF5 file (as Keras writes)"),
    (4, b"TFL3", "a TensorFlow Lite file"),
)
"""Start, signature and description of files that people take for models."""
_FLOATING = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16)


def read(path: str) -> onnx.ModelProto:
    """Read and check an ONNX file, or a tar archive of one and the files with its weights.

    The weights of large models stay in the file, which the model refers to as ``weights`` says. Raises EngineFailure
    ``invalid_model``, ``unsupported_operators``.
    """
    try:
        with Path(path).open("rb") as file:
            model = external.read(file, Path(path)) if external.is_archive(file) else _parsed(Path(path))
    except OSError as error:
        raise EngineFailure("invalid_model", f"cannot read the model: {error.strerror}") from error
    _vet(model)
    ordering.sort(model.graph)
    _check_form(model)
    return model


def read_optimized(path: Path) -> onnx.ModelProto:
    """Read and check a file that ONNX Runtime wrote, with a file of large weights beside it or not.

    The model refers to these files. Raises EngineFailure ``invalid_model``.
    """
    model = onnx.load_model_from_string(path.read_bytes())
    weights.adopt(model.graph.initializer, path.parent)
    check(model)
    return model


def _parsed(path: Path) -> onnx.ModelProto:
    try:
        model, large = weights.parse(path)
    except DecodeError as error:
        raise refuse("not_onnx", _what(path)) from error
    vetting.check_inside(model)
    for tensor, place in large:
        weights.refer(tensor, place)
    return model


def _what(path: Path) -> str:
    """Describe a file that is no ONNX model."""
    with path.open("rb") as file:
        content = file.read(16)
    for start, signature, kind in _SIGNATURES:
        if content[start : start + len(signature)] == signature:
            return f"{kind}, not an ONNX file; upload an .onnx file, or a tar archive of one and its weights"
    return "not an ONNX file, or truncated"


def check(model: onnx.ModelProto) -> None:
    """Raise EngineFailure ``invalid_model`` or ``unsupported_operators`` if vetting or ``onnx.checker`` rejects it."""
    _vet(model)
    _check_form(model)


def _vet(model: onnx.ModelProto) -> None:
    if not model.HasField("graph"):
        raise refuse("not_onnx", "the file contains no graph")
    vetting.check(model)


def _check_form(model: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(_standard(weights.checkable(model)))
    except (onnx.checker.ValidationError, ValueError) as error:
        raise refuse("checker", f"onnx.checker: {str(error).strip()[:1500]}") from error


RUNTIMES_OWN = frozenset({"SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime has in ONNX's domain, and ONNX does not know. Its tools write them."""
_RUNTIMES_DOMAIN = "com.microsoft"


def _standard(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model for ``onnx.checker``, which passes over operators of other domains."""
    if not any(node.op_type in RUNTIMES_OWN for node in model.graph.node):
        return model
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for node in copied.graph.node:
        if node.op_type in RUNTIMES_OWN and node.domain in STANDARD_DOMAINS:
            node.domain = _RUNTIMES_DOMAIN
    if not any(entry.domain == _RUNTIMES_DOMAIN for entry in copied.opset_import):
        copied.opset_import.append(onnx.helper.make_opsetid(_RUNTIMES_DOMAIN, 1))
    return copied


def fed_inputs(model: onnx.ModelProto) -> list[Any]:
    """Return the inputs that a caller feeds: models before IR version 4 list their weights as inputs as well."""
    constants = {tensor.name for tensor in model.graph.initializer}
    constants.update(tensor.values.name for tensor in model.graph.sparse_initializer)
    return [value for value in model.graph.input if value.name not in constants]


def spec(value: Any) -> Json:
    """Return ``{name, dtype, shape}``; a dynamic dimension is its symbol or None, an unknown rank is ``[None]``.

    Raises EngineFailure ``invalid_model`` for a value that is not a tensor.
    """
    if value.type.WhichOneof("value") != "tensor_type":
        raise refuse("dtype", f"{shown(value.name)} is not a tensor; inputs and outputs must be tensors")
    tensor = value.type.tensor_type
    shape: list[int | str | None] = [None]
    if tensor.HasField("shape"):
        shape = [_dimension(dimension) for dimension in tensor.shape.dim]
    return {"name": value.name, "dtype": dtype_name(tensor.elem_type), "shape": shape}


def dtype_name(elem_type: int) -> str:
    """Return the numpy name of an ONNX element type; strings are ``object``. Raises EngineFailure ``invalid_model``."""
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(elem_type).name)
    except KeyError:
        raise refuse("dtype", "an input or output has no element type") from None


def _dimension(dimension: Any) -> int | str | None:
    if dimension.HasField("dim_value") and dimension.dim_value > 0:
        return int(dimension.dim_value)
    symbol = str(dimension.dim_param)
    # Paddle writes "?" for every dynamic dimension, which does not identify one.
    return symbol if any(map(str.isalnum, symbol)) else None


def operator_counts(graph: onnx.GraphProto) -> dict[str, int]:
    """Count the operators of ``graph`` and its subgraphs; ``domain::Name`` outside the default domain."""
    counted = importing.counts(graph, STANDARD_DOMAINS)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def opset(model: onnx.ModelProto) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in STANDARD_DOMAINS), 1)


def inspect(path: str) -> Json:
    """Return the facts shown for an upload, without running the model."""
    model = read(path)
    vetting.check_memory(model)
    return {
        "inputs": [spec(value) for value in fed_inputs(model)],
        "outputs": [spec(value) for value in model.graph.output],
        "opset": opset(model),
        "ir_version": int(model.ir_version),
        "operators": operator_counts(model.graph),
        "parameters": _parameters(model.graph),
    }


def _parameters(graph: onnx.GraphProto) -> int:
    """Count the scalars in initializers and in floating-point ``Constant`` nodes, where Paddle stores weights."""
    constants = [node.attribute[0].t for node in graph.node if node.op_type == "Constant" and node.attribute]
    numbers = [tensor for tensor in constants if tensor.data_type in _FLOATING]
    return sum(math.prod(tensor.dims) for tensor in [*graph.initializer, *numbers])
