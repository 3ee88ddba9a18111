"""Names that parts of a graph read, and nodes in an order in which they can run."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import onnx

from tuner.engines.runtime import importing


def read(graph: onnx.GraphProto) -> Iterable[str]:
    """Yield the names of tensors read by nodes, by nodes of subgraphs, and as outputs."""
    for node in graph.node:
        yield from read_by(node)
    yield from (value.name for value in graph.output)


def read_by(node: onnx.NodeProto) -> Iterable[str]:
    """Yield the names of tensors read by the node or its subgraphs, including tensors local to subgraphs."""
    yield from (name for name in node.input if name)
    for subgraph in importing.subgraphs(node.attribute):
        yield from read(subgraph)


def sort(graph: onnx.GraphProto) -> None:
    """Sort nodes, of subgraphs too, so that each follows those whose results it reads, if there is such an order.

    ONNX demands it, but ONNX Runtime reads other files as well, and writes some: its converter to float16 appends what
    converts the inputs.
    """
    for node in graph.node:
        for subgraph in importing.subgraphs(node.attribute):
            sort(subgraph)
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    before = {
        place: {makers[name] for name in read_by(node) if name in makers} for place, node in enumerate(graph.node)
    }
    if all(each < place for place, places in before.items() for each in places):
        return
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError:
        return
    nodes = [onnx.NodeProto.FromString(graph.node[place].SerializeToString()) for place in order]
    del graph.node[:]
    graph.node.extend(nodes)
