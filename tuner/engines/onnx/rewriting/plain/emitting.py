"""Building of the nodes that replace a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tuner.engines.onnx import models
from tuner.engines.onnx.rewriting import graphs, inlining
from tuner.engines.runtime import weights

OLDEST_OPSET = 11
"""First operator set with ``Round``."""
_SIZES_AS_INPUTS = 13
"""First operator set whose ``Split`` has its sizes as an input, ``Unsqueeze`` and ``ReduceSum`` their axes."""
AXES_AS_INPUTS = 18
"""First operator set whose other reductions have their axes as an input."""

Replacement = Callable[[onnx.NodeProto], None]
"""Emits what replaces a node. Raises Declined."""


class Declined(Exception):
    """A node has no replacement and stays as it is."""


class Emitter:
    """Replaces nodes of a graph with static shapes, whose constants are initializers.

    Nodes are given and returned by the names of their outputs, and are valid from ``OLDEST_OPSET`` on.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.shapes = graphs.shapes(model)
        self.opset = models.opset(model)
        self._model = model
        self._graph = model.graph
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._names = graphs.Names(model.graph)
        self._nodes: list[onnx.NodeProto] = []
        self._added: list[onnx.TensorProto] = []

    @cached_property
    def kinds(self) -> dict[str, int]:
        """The known element types of the graph's tensors."""
        return graphs.kinds(self._model)

    def replace(self, find: Callable[[onnx.NodeProto], Replacement | None]) -> int:
        """Replace every node for which ``find`` returns a function that does not decline; return their number."""
        count = 0
        for node in self._graph.node:
            replacement = find(node)
            kept = len(self._nodes), len(self._added)
            try:
                if replacement is not None:
                    replacement(node)
                    count += 1
                    continue
            except Declined:
                # What it has emitted is dropped.
                del self._nodes[kept[0] :], self._added[kept[1] :]
            self._nodes.append(node)
        if count:
            graphs.replace_nodes(self._graph, self._nodes)
            self._graph.initializer.extend(self._added)
            graphs.drop_unused(self._graph)
        return count

    def value(self, name: str) -> Any:
        """Return a constant's array, or None."""
        return weights.array(self._constants[name]) if name in self._constants else None

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = self._names.new("plain")
        self._added.append(numpy_helper.from_array(np.asarray(values, dtype, order="C"), name))
        return name

    def emit(self, operator: str, inputs: Iterable[str], output: str | None = None, **attributes: Any) -> str:
        output = output or self._names.new("plain_value")
        self._nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def scalars(self) -> dict[str, int]:
        """Return the integer and boolean constants of one element, by name."""
        single = {name: tensor for name, tensor in self._constants.items() if list(tensor.dims) in ([], [1])}
        arrays = {name: numpy_helper.to_array(tensor).reshape(-1) for name, tensor in single.items()}
        return {name: int(array[0]) for name, array in arrays.items() if array.dtype.kind in "bi"}

    def inline(self, body: onnx.GraphProto, given: Mapping[str, str]) -> list[str]:
        """Emit the nodes of a subgraph, with the values ``given`` for its inputs; return its outputs."""
        made = inlining.inline(body, given, self._names)
        self._nodes += made.nodes
        self._added += made.weights
        return made.outputs

    def append(self, node: onnx.NodeProto) -> None:
        """Emit a node as it is."""
        self._nodes.append(node)

    def copy(self, node: onnx.NodeProto, operator: str, inputs: Iterable[str], output: str | None = None) -> str:
        """Emit an operator of the standard domain with the attributes of ``node``."""
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        return self.emit(operator, inputs, output, **attributes)

    def reshape(self, name: str, shape: Sequence[int], output: str | None = None) -> str:
        return self.emit("Reshape", [name, self.constant(shape, np.int64)], output)

    def unsqueeze(self, name: str, axis: int) -> str:
        if self.opset < _SIZES_AS_INPUTS:
            return self.emit("Unsqueeze", [name], axes=[axis])
        return self.emit("Unsqueeze", [name, self.constant([axis], np.int64)])

    def reduced(
        self, operator: str, name: str, axes: int | Sequence[int], output: str | None = None, *, keepdims: int = 1
    ) -> str:
        """Emit a reduction; its axes stay with size 1, unless ``keepdims`` is 0."""
        listed = [axes] if isinstance(axes, int) else list(axes)
        if self.opset < (_SIZES_AS_INPUTS if operator == "ReduceSum" else AXES_AS_INPUTS):
            return self.emit(operator, [name], output, axes=listed, keepdims=keepdims)
        return self.emit(operator, [name, self.constant(listed, np.int64)], output, keepdims=keepdims)

    def split(self, name: str, axis: int, sizes: Sequence[int]) -> list[str]:
        """Emit one operator for all parts: TVM's importer of Relay compiles a program for each ``Slice``."""
        if len(sizes) == 1:
            return [name]
        outputs = [self._names.new("plain_part") for _ in sizes]
        if self.opset < _SIZES_AS_INPUTS:
            self._nodes.append(helper.make_node("Split", [name], outputs, axis=axis, split=list(sizes)))
        else:
            given = [name, self.constant(sizes, np.int64)]
            self._nodes.append(helper.make_node("Split", given, outputs, axis=axis))
        return outputs

    def cast(self, name: str, kind: int, output: str | None = None) -> str:
        return self.emit("Cast", [name], output, to=kind)

    def to_float(self, name: str) -> str:
        return self.cast(name, TensorProto.FLOAT)


class Replacements:
    """Replacements of operators: ``methods`` names the method for each, by domain and operator."""

    methods: ClassVar[Mapping[tuple[str, str], str]]

    def __init__(self, emitter: Emitter) -> None:
        self._e = emitter

    def find(self, node: onnx.NodeProto) -> Replacement | None:
        domain = "" if node.domain in models.STANDARD_DOMAINS else node.domain
        method = self.methods.get((domain, node.op_type))
        return getattr(self, method) if method else None


def replace(model: onnx.ModelProto, made_by: Callable[[Emitter], Replacements]) -> int:
    """Replace operators and return their number; none in operator sets before ``OLDEST_OPSET``."""
    if models.opset(model) < OLDEST_OPSET:
        return 0
    emitter = Emitter(model)
    return emitter.replace(made_by(emitter).find)
