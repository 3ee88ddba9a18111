"""Choice of the branches of ``If`` that a model can take with static shapes.

A file for several sampling rates has a branch for each. With the shapes of one rate, ONNX Runtime refuses to load the
file, because the sizes in the other branches contradict each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tuner.engines.onnx import models, ordering, sessions
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.onnx.rewriting import graphs, inlining
from tuner.engines.protocol.serving import EngineFailure

_MOST = 4
"""Maximum ``If`` of the main graph: all combinations of their branches are tried."""
_MOST_VALUES = 32
_BRANCHES = ("then_branch", "else_branch")


def applies(model: onnx.ModelProto) -> bool:
    """Return whether the model has branches to choose from."""
    return any(_is_if(node) for node in model.graph.node)


def take(static: onnx.ModelProto, original: onnx.ModelProto, inputs: Arrays) -> onnx.ModelProto | None:
    """Return a model of static shapes with the only branches with which ONNX Runtime loads it, or None.

    The ``original``, whose shapes are open, must compute the same for ``inputs``, with one of its own constants for an
    input that chose the branch. That input stays and has no effect. None also if there are several such combinations.
    """
    count = sum(_is_if(node) for node in static.graph.node)
    if count > _MOST:
        return None
    candidates = [_with(static, chosen) for chosen in itertools.product(_BRANCHES, repeat=count)]
    loaded = [candidate for candidate in candidates if _loads(candidate)]
    return loaded[0] if len(loaded) == 1 and _is_same(original, loaded[0], inputs) else None


def _is_if(node: onnx.NodeProto) -> bool:
    return node.op_type == "If" and node.domain in models.STANDARD_DOMAINS


def _with(model: onnx.ModelProto, chosen: Sequence[str]) -> onnx.ModelProto:
    """Return a copy with these branches, in the order of their nodes."""
    copy = graphs.copy(model)
    names, branches = graphs.Names(copy.graph), iter(chosen)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if not _is_if(node):
            nodes.append(node)
            continue
        made = inlining.inline(graphs.attribute(node, next(branches)), {}, names)
        nodes += made.nodes
        nodes += [
            helper.make_node("Identity", [name], [output])
            for name, output in zip(made.outputs, node.output, strict=True)
            if output
        ]
        copy.graph.initializer.extend(made.weights)
    graphs.replace_nodes(copy.graph, _needed(nodes, [value.name for value in copy.graph.output]))
    graphs.drop_unused(copy.graph)
    return copy


def _needed(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes that outputs depend on: those that chose a branch are left over."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(ordering.read_by(node))
    return kept[::-1]


def _loads(model: onnx.ModelProto) -> bool:
    try:
        sessions.open_session(model, threads=1, level=sessions.BASIC)
    except EngineFailure:
        return False
    return True


def _is_same(model: onnx.ModelProto, taken: onnx.ModelProto, inputs: Arrays) -> bool:
    found = sessions.run(sessions.open_session(taken, threads=1), inputs)
    # Without optimization, ONNX Runtime looks only into the branch that is taken.
    session = sessions.open_session(model, threads=1, level=sessions.NONE)
    for fed in _choosing(model, taken, inputs):
        try:
            expected = sessions.run(session, fed)
        except EngineFailure:
            continue
        if all(output["passed"] for output in comparing.compare(expected, found)):
            return True
    return False


def _choosing(model: onnx.ModelProto, taken: onnx.ModelProto, inputs: Arrays) -> Iterator[Arrays]:
    """Yield inputs with other values for the one that only chose a branch, if there is one."""
    yield inputs
    read, now = graphs.uses(model.graph), graphs.uses(taken.graph)
    choosing = [name for name, array in inputs.items() if read[name] and not now[name] and array.size == 1]
    if len(choosing) != 1:
        return
    like = inputs[choosing[0]]
    for value in itertools.islice(_scalars(model, like.dtype), _MOST_VALUES):
        yield {**inputs, choosing[0]: np.full_like(like, value)}


def _scalars(model: onnx.ModelProto, dtype: Any) -> Iterator[Any]:
    yield from (0, 1)
    lifted = graphs.copy(model)
    graphs.lift_constants(lifted)
    for tensor in lifted.graph.initializer:
        if list(tensor.dims) in ([], [1]) and numpy_helper.to_array(tensor).dtype == dtype:
            yield numpy_helper.to_array(tensor).reshape(-1)[0]
