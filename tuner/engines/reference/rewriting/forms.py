"""Goes through a graph and keeps some of its tensors in another form; one that is needed as it was is restored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import onnx
from onnx import helper, numpy_helper

from tuner.engines.reference.rewriting import graphs

Form = TypeVar("Form")

UNARY = (
    *("Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log"),
    *("Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
)
BROADCASTING = ("Add", "Clip", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum")
ELEMENTWISE = (*UNARY, *BROADCASTING)
"""Compute each element of the result from one of each input."""

_BOUNDS_OF_SLICES_AS_INPUTS, _BOUNDS_OF_PADS_AS_INPUTS = 10, 11
"""Operator sets before which they were attributes."""


class Walk(ABC, Generic[Form]):
    """Nodes are visited in order, so that a form reaches from what makes it to what can do nothing with it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.count = 0
        self.shapes = graphs.shapes(model)
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.names = graphs.Names(graph)
        self.forms: dict[str, Form] = {}
        self._opset = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=1)
        self._graph = graph
        self._nodes: list[onnx.NodeProto] = []
        self._added: list[onnx.TensorProto] = []
        self._restored: set[str] = set()
        read = Counter(name for node in graph.node for name in node.input if name)
        # Outputs, and what subgraphs capture.
        self._kept = {name for name, count in graphs.uses(graph).items() if count > read[name]}

    @abstractmethod
    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> Form | None:
        """Emit the node for its inputs' forms and return its output's; None leaves it as it is. ``shape`` is its only
        output's."""

    @abstractmethod
    def restore(self, form: Form, name: str) -> None:
        """Emit what makes the tensor of that name."""

    def run(self) -> int:
        """Returns ``count``; with none the graph stays untouched."""
        for node in self._graph.node:
            self._visit(node)
        if self.count:
            graphs.replace_nodes(self._graph, self._nodes)
            self._graph.initializer.extend(self._added)
            graphs.drop_unused(self._graph)
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

    def need(self, name: str) -> None:
        """Have the tensor of that name as it was."""
        form = self.forms.get(name)
        if form is not None and name not in self._restored:
            self._restored.add(name)
            self.restore(form, name)

    def emit(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def emit_like(self, node: onnx.NodeProto, inputs: Sequence[str], **attributes: Any) -> str:
        """Emit the node with other inputs, a new output, and some other attributes; returns the output's name."""
        copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
        copy.input.extend(inputs)
        copy.output.append(self.names.new(f"{node.output[0]}_turned"))
        copy.attribute.extend(each for each in node.attribute if each.name not in attributes)
        copy.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self._nodes.append(copy)
        return copy.output[0]

    def reshaped(self, name: str, shape: Sequence[int], output: str) -> str:
        return self.emit("Reshape", [name, self.integers(f"{output}_shape", shape)], output)

    def cut(self, name: str, axis: int, end: int) -> str:
        """What lies before ``end`` along an axis."""
        output = self.names.new(f"{name}_cut")
        if self._opset < _BOUNDS_OF_SLICES_AS_INPUTS:
            return self.emit("Slice", [name], output, starts=[0], ends=[end], axes=[axis])
        bounds = [
            self.integers(f"{output}_{word}", [value]) for word, value in (("start", 0), ("end", end), ("axis", axis))
        ]
        return self.emit("Slice", [name, *bounds], output)

    def filled(self, name: str, pads: Sequence[int]) -> str:
        """With zeros around, as ``Pad`` counts them."""
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
        return numpy_helper.to_array(self.constants[name])
