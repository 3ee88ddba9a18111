"""An estimate of what a model's values take, by shape inference over the model without its large weights."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from typing import Any

import onnx

from tuner.engines.reference.vetting.refusal import refuse

_SMALL = 1024
"""Elements of a weight that may say a shape: the others' values tell nothing of any."""
_WITHOUT_LIMIT = 2**36
_OVERFLOWN = 2**40
_BYTES = 4
"""Of an element whose type says nothing of its size."""


def check(model: onnx.ModelProto) -> None:
    """Raises EngineFailure ``invalid_model``: ``memory``.

    Inputs and outputs are there together, other values come and go: of those the largest counts. What depends on
    dimensions or values that nobody knows yet counts nothing: the limits of the process are for that.
    """
    allowed = _allowed()
    ends = [*model.graph.input, *model.graph.output]
    for kind, found in (("inputs and outputs", sum(map(_size, ends))), ("largest value", _largest(model))):
        if found > allowed:
            needed, limit = f"{found / 1e9:,.0f} GB", f"{allowed / 1e9:.1f} GB"
            raise refuse("memory", f"its {kind} would take {needed}; {limit} are allowed")


def _allowed() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    data, _ = resource.getrlimit(resource.RLIMIT_DATA)
    set_ones = [limit for limit in (soft, data) if limit != resource.RLIM_INFINITY]
    return min([*set_ones, _WITHOUT_LIMIT])


def _largest(model: onnx.ModelProto) -> int:
    try:
        # Without data propagation, which can be made to run for minutes and to eat gigabytes itself.
        inferred = onnx.shape_inference.infer_shapes(_skeleton(model))
    except Exception:  # noqa: BLE001 - whatever it cannot infer, ONNX Runtime judges
        return 0
    return max((_size(value) for value in _values(inferred.graph)), default=0)


def _values(graph: Any) -> Iterator[Any]:
    yield from graph.value_info
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from _values(inner)


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its large weights as inputs, and without what it says itself of intermediate values."""
    graph = onnx.GraphProto(name=model.graph.name or "graph", node=model.graph.node, output=model.graph.output)
    named = {value.name for value in model.graph.input}
    graph.input.extend(model.graph.input)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL:
            graph.initializer.append(tensor)
        elif tensor.name not in named:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return onnx.ModelProto(
        ir_version=max(model.ir_version, 4),
        graph=graph,
        opset_import=model.opset_import,
        functions=model.functions,
    )


def _size(value: Any) -> int:
    """Bytes; 0 where a dimension is not known."""
    tensor = value.type.tensor_type
    sizes = [dimension.dim_value if dimension.HasField("dim_value") else 0 for dimension in tensor.shape.dim]
    if not tensor.HasField("shape") or -1 in sizes:
        return 0
    if any(size < 0 for size in sizes):
        # Shape inference adds up some sizes in 32 bits.
        return _OVERFLOWN
    return math.prod(sizes) * _item(tensor.elem_type)


def _item(elem_type: int) -> int:
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(elem_type).itemsize) or _BYTES
    except (KeyError, TypeError, ValueError):
        return _BYTES
