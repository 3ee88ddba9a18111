"""Copies of the nodes of a subgraph for the graph around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.runtime import importing


@dataclass(frozen=True, kw_only=True)
class Inlined:
    nodes: list[onnx.NodeProto]
    weights: list[onnx.TensorProto]
    outputs: list[str]
    """Names of the subgraph's outputs among the copies."""


def inline(body: onnx.GraphProto, given: Mapping[str, str], names: graphs.Names) -> Inlined:
    """Return copies of a subgraph's nodes and initializers with names that are new in the graph around it.

    ``given`` has the values for the subgraph's inputs, and for those of its initializers that need no copy.
    """
    renamed = dict(given)
    weights = []
    for tensor in body.initializer:
        if tensor.name not in renamed:
            renamed[tensor.name] = names.new(tensor.name)
            weights.append(onnx.TensorProto())
            weights[-1].CopyFrom(tensor)
            weights[-1].name = renamed[tensor.name]
    nodes = []
    for node in body.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _rename(copy, renamed)
        for place, output in enumerate(copy.output):
            if output:
                renamed[output] = copy.output[place] = names.new(output)
        nodes.append(copy)
    outputs = [renamed.get(each.name, each.name) for each in body.output]
    return Inlined(nodes=nodes, weights=weights, outputs=outputs)


def _rename(node: onnx.NodeProto, renamed: Mapping[str, str]) -> None:
    """Rename what a node and its subgraphs read."""
    for place, name in enumerate(node.input):
        node.input[place] = renamed.get(name, name)
    for graph in importing.subgraphs(node.attribute):
        own = {each.name for each in (*graph.input, *graph.initializer)}
        own.update(output for inner in graph.node for output in inner.output)
        outer = {name: new for name, new in renamed.items() if name not in own}
        for inner in graph.node:
            _rename(inner, outer)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)
