"""A walk over everything that a model holds, which may be more than it looks like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx

from tuner.engines.reference.vetting.refusal import refuse, shown

_MOST_NODES = 200_000
_MOST_TENSORS = 200_000
_MOST_VALUES = 1_000_000
_MOST_FUNCTIONS = 10_000
_MOST_ENDS = 10_000
"""Inputs and outputs of a model."""
_DEEPEST = 16
"""Graphs within graphs, and functions that call functions; exporters nest two or three."""


@dataclass
class Parts:
    """All there is, at whatever depth."""

    graphs: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    """Weights and constants, also those that make up a sparse one."""


def walk(model: onnx.ModelProto) -> Parts:
    """Raises EngineFailure ``invalid_model``: ``too_many``, ``nested_too_deep``."""
    if len(model.functions) > _MOST_FUNCTIONS:
        raise refuse("too_many", f"it defines {len(model.functions)} functions; {_MOST_FUNCTIONS} are allowed")
    if max(len(model.graph.input), len(model.graph.output)) > _MOST_ENDS:
        raise refuse("too_many", f"it has more than {_MOST_ENDS} inputs or outputs")
    parts = Parts()
    _graph(model.graph, parts)
    for info in model.training_info:
        _graph(info.initialization, parts)
        _graph(info.algorithm, parts)
    for function in model.functions:
        _nodes(function.node, parts, depth=1)
        for attribute in function.attribute_proto:
            _attribute(attribute, parts, depth=1)
    _check_expanded(model)
    return parts


def _graph(graph: Any, parts: Parts, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise refuse("nested_too_deep", f"its graphs are nested deeper than {_DEEPEST} levels")
    parts.graphs.append(graph)
    parts.tensors.extend(graph.initializer)
    for sparse in graph.sparse_initializer:
        parts.tensors += [sparse.values, sparse.indices]
    if len(graph.value_info) > _MOST_VALUES:
        raise refuse("too_many", f"it describes more than {_MOST_VALUES} values")
    _nodes(graph.node, parts, depth)


def _nodes(nodes: Any, parts: Parts, depth: int) -> None:
    parts.nodes.extend(nodes)
    if len(parts.nodes) > _MOST_NODES:
        raise refuse("too_many", f"it has more than {_MOST_NODES} nodes")
    if len(parts.tensors) > _MOST_TENSORS:
        raise refuse("too_many", f"it has more than {_MOST_TENSORS} tensors")
    for node in nodes:
        for attribute in node.attribute:
            _attribute(attribute, parts, depth)


def _attribute(attribute: Any, parts: Parts, depth: int) -> None:
    if attribute.HasField("t"):
        parts.tensors.append(attribute.t)
    parts.tensors.extend(attribute.tensors)
    for sparse in [
        *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []),
        *attribute.sparse_tensors,
    ]:
        parts.tensors += [sparse.values, sparse.indices]
    for graph in subgraphs(attribute):
        _graph(graph, parts, depth + 1)


def subgraphs(attribute: Any) -> list[Any]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _check_expanded(model: onnx.ModelProto) -> None:
    """Ten functions that each call the one before ten times are ten thousand million nodes to whoever expands them."""
    if not model.functions:
        return
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    for name in bodies:
        _expanded(name, bodies, sizes, [])
    total = sum(sizes.get((node.domain, node.op_type), 1) for node in _all(model.graph.node))
    if total > _MOST_NODES:
        raise refuse("too_many", f"with its functions expanded it has {min(total, 10**12)} nodes")


def _expanded(name: tuple[str, str], bodies: dict[Any, Any], sizes: dict[Any, int], above: list[Any]) -> int:
    if name in sizes:
        return sizes[name]
    if name in above or len(above) > _DEEPEST:
        raise refuse("nested_too_deep", f"its function {shown(name[1])} calls itself, or too many levels of others")
    called = ((node.domain, node.op_type) for node in _all(bodies[name]))
    size = sum(_expanded(each, bodies, sizes, [*above, name]) if each in bodies else 1 for each in called)
    sizes[name] = size
    return size


def _all(nodes: Any) -> Iterator[Any]:
    """With those of subgraphs; their depth was checked."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                yield from _all(graph.node)
