"""Graph queries for rewriting passes (shapes, constants, uses), and ``GraphWalk``, their common traversal."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import onnx
from onnx import TensorProto, helper, numpy_helper

from tuner.engines.onnx import models, ordering, sessions
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import importing, weights

Shapes = dict[str, tuple[int, ...]]
_SMALL = 1024
"""Maximum elements of a constant that may specify a shape, axes or the like."""


def lift_constants(model: onnx.ModelProto) -> None:
    """Convert every ``Constant`` of the main graph to an initializer, except sparse and string ones."""
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


def copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Replace the graph's nodes by ``nodes``, which may contain nodes of the graph itself."""
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a unique name, which nodes need not have.

    ONNX Runtime names what its fusions make after the nodes, and fails where two have the same name; layers that stay
    in float32 are chosen by name.
    """
    taken: set[str] = set()
    for place, node in enumerate(graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{place}"
        taken.add(node.name)


def shapes(model: onnx.ModelProto) -> Shapes:
    """Return the known static shapes of the main graph's tensors, including initializers, by name."""
    found: Shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in _inferred(model):
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            continue
        dimensions = value.type.tensor_type.shape.dim
        if all(dimension.HasField("dim_value") for dimension in dimensions):
            found[value.name] = tuple(int(dimension.dim_value) for dimension in dimensions)
    return found


def kinds(model: onnx.ModelProto) -> dict[str, int]:
    """Return the known element types of the main graph's tensors, including initializers, by name."""
    found = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return found | {value.name: value.type.tensor_type.elem_type for value in _inferred(model)}


def _inferred(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    light = _without_weights(model)
    graph = onnx.shape_inference.infer_shapes(light).graph
    found = [*graph.input, *graph.value_info, *graph.output]
    if any(node.domain not in models.STANDARD_DOMAINS or node.op_type in models.RUNTIMES_OWN for node in graph.node):
        found += _known_to_runtime(light)
    return found


def _known_to_runtime(light: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the results of all nodes as ONNX Runtime infers them: ONNX's inference ends at the operators it adds."""
    listed = {value.name for value in light.graph.output}
    names = [name for node in light.graph.node for name in node.output if name and name not in listed]
    light.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        session = sessions.open_session(light, threads=1, level=sessions.NONE)
    except EngineFailure:
        return []
    tensors = [value for value in session.get_outputs() if value.type in _KINDS]
    return [helper.make_tensor_value_info(value.name, _KINDS[value.type], value.shape) for value in tensors]


_KINDS = {
    f"tensor({name})": kind
    for name, kind in (
        *(("float", TensorProto.FLOAT), ("float16", TensorProto.FLOAT16), ("double", TensorProto.DOUBLE)),
        *(("int64", TensorProto.INT64), ("int32", TensorProto.INT32), ("bool", TensorProto.BOOL)),
        *(("int8", TensorProto.INT8), ("uint8", TensorProto.UINT8)),
    )
}
"""Element types by ONNX Runtime's names."""


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with large constants as inputs: shape inference needs only their shapes and copies the model."""
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


def uses(graph: onnx.GraphProto) -> dict[str, int]:
    """Count how often each tensor is read, by nodes, by nodes of subgraphs, and as an output."""
    return Counter(ordering.read(graph))


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and initializers that nothing reads; nodes are sorted."""
    read = Counter(ordering.read(graph))
    for place in reversed(range(len(graph.node))):
        if not any(read[name] for name in graph.node[place].output):
            read.subtract(ordering.read_by(graph.node[place]))
            del graph.node[place]
    kept = [tensor for tensor in graph.initializer if read[tensor.name]]
    if len(kept) < len(graph.initializer):
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(copies)


def drop_unused_opsets(model: onnx.ModelProto) -> None:
    """Remove the operator sets of domains that no node uses, which importers would check; the standard one stays."""
    used = {node.domain for node in model.graph.node}
    kept = [entry for entry in model.opset_import if entry.domain in models.STANDARD_DOMAINS or entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    found = next((each for each in node.attribute if each.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def axis_after(shape: tuple[int, ...], out: tuple[int, ...], axis: int) -> int | None:
    """Return an axis's position after a reshape, with as many elements before and after it, or None."""
    if 0 in shape:
        return None
    place = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    places = [(math.prod(out[:each]), out[each], math.prod(out[each + 1 :])) for each in range(len(out))]
    return places.index(place) if place in places else None


class Names:
    """Generator of names that are unused in a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._taken = set(ordering.read(graph))
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


@dataclass(frozen=True, kw_only=True)
class Turned:
    """A tensor in another form."""

    name: str = ""


Form = TypeVar("Form", bound=Turned)

UNARY = (
    *("Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log"),
    *("Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
)
BROADCASTING = ("Add", "Clip", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum")
ELEMENTWISE = (*UNARY, *BROADCASTING)
"""Operators that compute each element from one element of each input."""

_BOUNDS_OF_SLICES_AS_INPUTS, _BOUNDS_OF_PADS_AS_INPUTS = 10, 11
"""First operator sets in which bounds are inputs instead of attributes."""


class GraphWalk(ABC, Generic[Form]):
    """Traversal that keeps some tensors of a graph in another form, and restores those needed as they were.

    Nodes are visited in order, so a form propagates from the node that creates it to those that cannot use it.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.count = 0
        self.shapes = shapes(model)
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.names = Names(graph)
        self.forms: dict[str, Form] = {}
        self._opset = models.opset(model)
        self._graph = graph
        self._nodes: list[onnx.NodeProto] = []
        self._added: list[onnx.TensorProto] = []
        self._restored: set[str] = set()
        read = Counter(name for node in graph.node for name in node.input if name)
        # Outputs and tensors captured by subgraphs.
        self._kept = {name for name, count in uses(graph).items() if count > read[name]}

    @abstractmethod
    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> Form | None:
        """Emit the node for its inputs' forms and return its output's form; None leaves the node unchanged.

        ``shape`` is that of its only output.
        """

    def operand(self, name: str, shape: tuple[int, ...], form: Form) -> str | None:  # noqa: ARG002
        """Return the operand of an elementwise operator with this output shape in the given form, or None."""
        return None

    @abstractmethod
    def restore(self, form: Form, name: str) -> None:
        """Emit the nodes that restore the original tensor of that name."""

    def run(self) -> int:
        """Transform the graph and return ``count``; if it is 0 the graph is unchanged."""
        for node in self._graph.node:
            self._visit(node)
        if self.count:
            replace_nodes(self._graph, self._nodes)
            self._graph.initializer.extend(self._added)
            drop_unused(self._graph)
        return self.count

    def _visit(self, node: onnx.NodeProto) -> None:
        shape = self.shapes.get(node.output[0]) if len(node.output) == 1 else None
        form = self.turned(node, shape) if shape is not None and node.input else None
        if form is None:
            for name in node.input:
                self.need(name)
            self._nodes.append(node)
            return
        self.forms[node.output[0]] = form
        if node.output[0] in self._kept:
            self.need(node.output[0])

    def elementwise(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> Form | None:
        """Implement ``turned`` for elementwise operators whose operands can all have the form of one."""
        form = next((self.forms[name] for name in node.input if name in self.forms), None)
        if form is None:
            return None
        operands = [self.operand(name, shape, form) for name in node.input]
        found = [operand for operand in operands if operand is not None]
        return replace(form, name=self.emit_like(node, found)) if len(found) == len(operands) else None

    def need(self, name: str) -> None:
        """Ensure that the original tensor of that name exists."""
        form = self.forms.get(name)
        if form is not None and name not in self._restored:
            self._restored.add(name)
            self.restore(form, name)

    def emit(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def emit_like(self, node: onnx.NodeProto, inputs: Sequence[str], **attributes: Any) -> str:
        """Emit a copy of the node with other inputs, a new output and some other attributes; return the new name."""
        copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
        copy.input.extend(inputs)
        copy.output.append(self.names.new(f"{node.output[0]}_turned"))
        copy.attribute.extend(each for each in node.attribute if each.name not in attributes)
        copy.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self._nodes.append(copy)
        return copy.output[0]

    def reshaped(self, name: str, shape: Sequence[int], output: str) -> str:
        return self.emit("Reshape", [name, self.integers(f"{output}_shape", shape)], output)

    def cut(self, name: str, axis: int, end: int) -> str:
        """Emit a slice of the elements before ``end`` along an axis; return its name."""
        return self.sliced(name, self.names.new(f"{name}_cut"), starts=[0], ends=[end], axes=[axis])

    def sliced(self, name: str, output: str, **bounds: Sequence[int]) -> str:
        """Emit a slice with ``starts``, ``ends``, ``axes`` and perhaps ``steps``; return its name."""
        if self._opset < _BOUNDS_OF_SLICES_AS_INPUTS:
            return self.emit("Slice", [name], output, **bounds)
        words = [word for word in ("starts", "ends", "axes", "steps") if word in bounds]
        constants = [self.integers(f"{output}_{word}", bounds[word]) for word in words]
        return self.emit("Slice", [name, *constants], output)

    def filled(self, name: str, pads: Sequence[int]) -> str:
        """Emit zero padding with ``pads`` as in ``Pad``; return its name."""
        output = self.names.new(f"{name}_filled")
        if self._opset < _BOUNDS_OF_PADS_AS_INPUTS:
            return self.emit("Pad", [name], output, pads=pads)
        return self.emit("Pad", [name, self.integers(f"{output}_pads", pads)], output)

    def integers(self, stem: str, values: Sequence[int]) -> str:
        name = self.names.new(stem)
        self._added.append(helper.make_tensor(name, onnx.TensorProto.INT64, [len(values)], values))
        return name

    def constant(self, stem: str, array: Any) -> str:
        name = self.names.new(f"{stem}_turned")
        self._added.append(numpy_helper.from_array(array, name))
        return name

    def array(self, name: str) -> Any:
        return weights.array(self.constants[name])

    def reduced_axes(self, node: onnx.NodeProto) -> set[int]:
        """Return the axes of a reduction, from 0 on; none if it does not list them, or not in a constant."""
        axes = attribute(node, "axes") or []
        if len(node.input) > 1 and node.input[1]:
            axes = self.array(node.input[1]).reshape(-1) if node.input[1] in self.constants else []
        rank = len(self.shapes[node.input[0]])
        return {int(axis) % rank for axis in axes}
