"""Names, which end up in databases, archives, messages and pages; and the types of what bears them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from tuner.engines.reference.vetting.graphs import Parts
from tuner.engines.reference.vetting.refusal import refuse, shown

_LONGEST = 10_000
"""Characters; exporters write whole module paths, of some hundreds."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST_SYMBOLS = 64
"""Dimensions of one value; NumPy has as many."""
_LARGEST = 2**40


def check(model: onnx.ModelProto, parts: Parts) -> None:
    """Raises EngineFailure ``invalid_model``: ``name``, ``duplicate_name``, ``shape``, ``dtype``."""
    for name in _names(model, parts):
        # Protobuf gives what is no UTF-8 as bytes.
        if isinstance(name, bytes) or len(name) > _LONGEST or _CONTROL.search(name):
            raise refuse("name", f"the name {shown(name)} is too long, has control characters or is no UTF-8")
    for graph in parts.graphs:
        weights = [tensor.name for tensor in graph.initializer]
        weights += [sparse.values.name for sparse in graph.sparse_initializer]
        for kind, names in (
            ("weights", weights),
            ("inputs", [value.name for value in graph.input]),
            ("outputs", [value.name for value in graph.output]),
        ):
            _check_distinct(kind, names)
        for value in [*graph.input, *graph.output, *graph.value_info]:
            _check_type(value)


def _names(model: onnx.ModelProto, parts: Parts) -> Iterator[str | bytes]:
    for entry in model.opset_import:
        yield entry.domain
    for node in parts.nodes:
        yield from (node.op_type, node.domain, node.name)
        yield from node.input
        yield from node.output
    for tensor in parts.tensors:
        yield tensor.name
    for graph in parts.graphs:
        for value in [*graph.input, *graph.output]:
            yield value.name
            yield from (dimension.dim_param for dimension in value.type.tensor_type.shape.dim)


def _check_distinct(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refuse("duplicate_name", f"two of its {kind} are called {shown(name)}")
        seen.add(name)


def _check_type(value: Any) -> None:
    if value.type.WhichOneof("value") != "tensor_type":
        return
    tensor = value.type.tensor_type
    known = onnx.TensorProto.DataType.values()
    if tensor.elem_type not in known:
        raise refuse("dtype", f"{shown(value.name)} has element type {tensor.elem_type}, which ONNX has not")
    sizes = [dimension.dim_value for dimension in tensor.shape.dim if dimension.HasField("dim_value")]
    if len(tensor.shape.dim) > _MOST_SYMBOLS:
        raise refuse("shape", f"{shown(value.name)} has {len(tensor.shape.dim)} dimensions")
    # Some exporters write -1 or 0 for a dimension that is not known.
    if any(size < -1 for size in sizes) or math.prod(size for size in sizes if size > 0) > _LARGEST:
        raise refuse("shape", f"{shown(value.name)} has the shape {sizes[:8]}")
