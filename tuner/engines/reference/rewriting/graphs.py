"""What rewritings need to know of a graph: shapes, constants, and who uses a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import onnx
from onnx import helper, numpy_helper

from tuner.engines.runtime import importing

Shapes = dict[str, tuple[int, ...]]
_SMALL = 1024
"""Elements of a constant that may be a shape, axes or the like."""


def lift_constants(model: onnx.ModelProto) -> None:
    """Make every ``Constant`` of the main graph an initializer; sparse and string ones stay."""
    graph = model.graph
    importing.use_tensors(graph)
    kept = []
    for node in graph.node:
        value = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
        if value is None or value.name != "value":
            kept.append(node)
            continue
        tensor = graph.initializer.add()
        tensor.CopyFrom(value.t)
        tensor.name = node.output[0]
    replace_nodes(graph, kept)


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Which may be nodes of the graph itself."""
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def shapes(model: onnx.ModelProto) -> Shapes:
    """Static shapes of the main graph's tensors, by name; initializers are among them, unknown ones are not."""
    inferred = onnx.shape_inference.infer_shapes(_without_weights(model)).graph
    found: Shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            continue
        dimensions = value.type.tensor_type.shape.dim
        if all(dimension.HasField("dim_value") for dimension in dimensions):
            found[value.name] = tuple(int(dimension.dim_value) for dimension in dimensions)
    return found


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its large constants as inputs: inference asks for their shapes alone, and copies the model."""
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = model.graph
    light.graph.CopyFrom(onnx.GraphProto(name=graph.name, node=graph.node, input=graph.input, output=graph.output))
    light.graph.sparse_initializer.extend(graph.sparse_initializer)
    listed = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= _SMALL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in listed:
            light.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return light


def arrays(graph: onnx.GraphProto) -> dict[str, Any]:
    """The values of initializers, by name; each is read when it is asked for by ``numpy_helper``'s rules."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def uses(graph: onnx.GraphProto) -> dict[str, int]:
    """How often a tensor is read, by nodes, by nodes of subgraphs, and as an output."""
    found: dict[str, int] = {}
    for name in _read(graph):
        found[name] = found.get(name, 0) + 1
    return found


def _read(graph: onnx.GraphProto) -> Iterable[str]:
    for node in graph.node:
        yield from read_by(node)
    yield from (value.name for value in graph.output)


def read_by(node: onnx.NodeProto) -> Iterable[str]:
    """Names of tensors that the node or its subgraphs read; of what subgraphs have themselves, too."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for subgraph in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
            yield from _read(subgraph)


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove initializers that nothing reads."""
    read = uses(graph)
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) < len(graph.initializer):
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(copies)


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    found = next((each for each in node.attribute if each.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


class Names:
    """New names that no tensor or node of a graph has."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._taken = set(_read(graph))
        self._taken.update(name for node in graph.node for name in (node.name, *node.output))
        self._taken.update(tensor.name for tensor in graph.initializer)
        self._taken.update(value.name for value in graph.input)

    def new(self, stem: str) -> str:
        name, number = stem, 0
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name
