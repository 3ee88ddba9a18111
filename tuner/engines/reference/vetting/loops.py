"""Loops that would never end, as far as a look at the graph can tell; the rest meets the limits of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from tuner.engines.reference.vetting import graphs
from tuner.engines.reference.vetting.refusal import refuse, shown

_MOST_ROUNDS = 10_000_000
"""Of a loop, with those of the loops around it; ONNX Runtime does some 100,000 a second."""
_SMALL = 1
"""Elements of a tensor that may be a trip count or a condition."""

Constants = Mapping[str, int]


def check(model: onnx.ModelProto) -> None:
    """Raises EngineFailure ``invalid_model``: ``endless_loop``.

    A loop that may end early counts once: exporters write the largest number there is for "while".
    """
    _graph(model.graph, {}, 1)
    for function in model.functions:
        _nodes(function.node, {}, 1)


def _graph(graph: Any, outer: Constants, rounds: int) -> None:
    known = {**outer, **{tensor.name: value for tensor in graph.initializer if (value := _scalar(tensor)) is not None}}
    _nodes(graph.node, known, rounds)


def _nodes(nodes: Any, outer: Constants, rounds: int) -> None:
    known = dict(outer)
    for node in nodes:
        if node.op_type == "Constant":
            value = _constant(node)
            if value is not None and node.output:
                known[node.output[0]] = value
        inside = rounds
        if node.op_type == "Loop":
            inside *= _rounds(node, known)
            if inside > _MOST_ROUNDS:
                raise refuse("endless_loop", f"loop {shown(node.name)} makes {min(inside, 10**12)} rounds or more")
        for attribute in node.attribute:
            for graph in graphs.subgraphs(attribute):
                _graph(graph, known, inside)


def _rounds(node: Any, known: Constants) -> int:
    """That it makes whatever its values are; 1 where they decide."""
    trips, condition = [*node.input, "", ""][:2]
    body = next((attribute.g for attribute in node.attribute if attribute.name == "body"), None)
    if body is None or (condition and known.get(condition) != 1) or not _goes_on(body, known):
        return 1
    if not trips:
        raise refuse("endless_loop", f"loop {shown(node.name)} has no trip count, and its condition is always true")
    return max(1, known.get(trips, 1))


def _goes_on(body: Any, known: Constants) -> bool:
    """Whether the body's condition is the one that it was given, or true."""
    if not body.output:
        return False
    name = body.output[0].name
    given = body.input[1].name if len(body.input) > 1 else None
    inside = {**known, **{tensor.name: value for tensor in body.initializer if (value := _scalar(tensor)) is not None}}
    makers = {node.output[0]: node for node in body.node if node.output}
    for _ in range(len(body.node)):
        maker = makers.get(name)
        if maker is None or maker.op_type not in ("Identity", "Cast") or not maker.input:
            break
        name = maker.input[0]
    maker = makers.get(name)
    value = _constant(maker) if maker is not None and maker.op_type == "Constant" else inside.get(name)
    return name == given or value == 1


def _constant(node: Any) -> int | None:
    for attribute in node.attribute:
        if attribute.name == "value":
            return _scalar(attribute.t)
        if attribute.name == "value_int":
            return int(attribute.i)
    return None


def _scalar(tensor: Any) -> int | None:
    """Of whole numbers and truth values; the tensor's size was checked."""
    whole = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
    if tensor.data_type not in whole or len(tensor.dims) > 1:
        return None
    values = onnx.numpy_helper.to_array(tensor).reshape(-1)
    return int(values[0]) if values.size == _SMALL else None
