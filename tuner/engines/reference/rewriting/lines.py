"""Convolutions along a line, turned so that the line is the innermost axis.

TVM tiles a convolution along the width of its output, by a divisor of it. Imported from one-dimensional layers, the
long axis is the height and the width is 1: one position at a time, and a quarter of the processor's speed. Such a
convolution becomes one of height 1, together with the elementwise operators and the pool after it. A width without
good divisors is padded, and what is too much is cut off at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper, numpy_helper

from tuner.engines.reference.rewriting import graphs

_LARGEST_TILE = 31
"""TVM holds so many vectors of sums in registers."""
_MOST_PADDING = 32
_WORTH = 0.95
"""Padding must bring the cost below this share: what it adds is copied once more."""
_OLDEST_OPSET = 10
"""From here on a ``Slice`` takes its bounds as inputs."""
_ELEMENTWISE = (
    *("Abs", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu"),
    *("Log", "Mish", "Neg", "PRelu", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
    *("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum"),
)
_VIEWS = ("Reshape", "Slice", "Squeeze", "Unsqueeze")
_POOLS = {"GlobalMaxPool": "MaxPool", "GlobalAveragePool": "AveragePool"}


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Returns how many convolutions were turned or padded."""
    if any(entry.domain in ("", "ai.onnx") and entry.version < _OLDEST_OPSET for entry in model.opset_import):
        return 0
    turning = _Turning(model)
    for node in model.graph.node:
        turning.visit(node)
    if turning.count:
        graphs.replace_nodes(model.graph, turning.nodes)
        model.graph.initializer.extend(turning.added)
        graphs.drop_unused(model.graph)
    return turning.count


def padded_width(width: int) -> int:
    """The width from ``width`` on that TVM computes in the least time; ``width`` itself where no other pays."""
    best = min(range(width, width + _MOST_PADDING + 1), key=_cost)
    return best if _cost(best) < _WORTH * _cost(width) else width


def _cost(width: int) -> float:
    """Measured of 256 to 512 channels: 25 % of the peak with tiles of 1, 70 % with 4, 95 % with 16 and more."""
    tile = next(size for size in range(min(width, _LARGEST_TILE), 0, -1) if width % size == 0)
    return width / min(0.95, 0.1 + 0.15 * tile)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A tensor ``[batch, channels, 1, width]``, whose first ``length`` columns are another's elements in order."""

    name: str
    length: int
    width: int


class _Turning:
    """Goes through the nodes in order and keeps tensors as lines; one that is needed as it was is restored."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.nodes: list[onnx.NodeProto] = []
        self.added: list[onnx.TensorProto] = []
        self.count = 0
        self._shapes = graphs.shapes(model)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._names = graphs.Names(graph)
        self._lines: dict[str, _Line] = {}
        self._restored: set[str] = set()
        read = Counter(name for node in graph.node for name in node.input if name)
        # Outputs, and what subgraphs capture.
        self._kept = {name for name, count in graphs.uses(graph).items() if count > read[name]}

    def visit(self, node: onnx.NodeProto) -> None:
        line = self._turned(node)
        if line is None:
            for name in node.input:
                self._restore(name)
            self.nodes.append(node)
            return
        self._lines[node.output[0]] = line
        if node.output[0] in self._kept:
            self._restore(node.output[0])

    def _turned(self, node: onnx.NodeProto) -> _Line | None:
        """The output as a line; None leaves the node as it is."""
        shape = self._shapes.get(node.output[0]) if len(node.output) == 1 else None
        if shape is None or len(shape) < 3 or not node.input:
            return None
        if node.op_type == "Conv":
            return self._convolution(node, shape)
        if node.op_type in _ELEMENTWISE:
            return self._elementwise(node, shape)
        line = self._lines.get(node.input[0])
        if line is None:
            return None
        if node.op_type in _VIEWS:
            return line if self._is_view(node, shape, line) else None
        if node.op_type == "BatchNormalization":
            return self._emit(node, [line.name, *node.input[1:]], line)
        return self._pool(node, line) if node.op_type in _POOLS else None

    def _convolution(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Line | None:
        source, kernel = self._shapes.get(node.input[0]), self._constants.get(node.input[1])
        if source is None or kernel is None:
            return None
        axis = _line_axis(node, source, tuple(kernel.dims), shape)
        if axis is None:
            return None
        length = shape[axis]
        width = padded_width(length)
        if axis == 3 and width == length and node.input[0] not in self._lines:
            return None
        data = self._columns(node.input[0], (*source[:2], 1, source[axis]))
        weights = numpy_helper.to_array(kernel).reshape(*kernel.dims[:2], 1, kernel.dims[axis])
        rank, along = len(shape) - 2, axis - 2
        ones, none = [1] * rank, [0] * (2 * rank)
        stride = (graphs.attribute(node, "strides") or ones)[along]
        pads = graphs.attribute(node, "pads") or none
        self.count += 1
        return self._emit(
            node,
            [data, self._constant(kernel.name, weights), *node.input[2:]],
            _Line(name="", length=length, width=width),
            kernel_shape=[1, kernel.dims[axis]],
            strides=[1, stride],
            dilations=[1, (graphs.attribute(node, "dilations") or ones)[along]],
            pads=[0, pads[along], 0, pads[along + rank] + (width - length) * stride],
            auto_pad="NOTSET",
        )

    def _is_view(self, node: onnx.NodeProto, shape: tuple[int, ...], line: _Line) -> bool:
        source = self._shapes[node.input[0]]
        if node.op_type == "Slice":
            steps = self._constants.get(node.input[4]) if len(node.input) > 4 else None
            is_forward = len(node.input) < 5 or (steps is not None and all(numpy_helper.to_array(steps) == 1))
            return is_forward and shape == source
        plain = (*source[:2], line.length)
        return shape in (plain, (*plain, 1), (*source[:2], 1, line.length))

    def _elementwise(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Line | None:
        line = next((self._lines[name] for name in node.input if name in self._lines), None)
        if line is None:
            return None
        operands = [self._operand(name, shape, line) for name in node.input]
        found = [operand for operand in operands if operand is not None]
        return self._emit(node, found, line) if len(found) == len(operands) else None

    def _operand(self, name: str, shape: tuple[int, ...], line: _Line) -> str | None:
        other, constant = self._lines.get(name), self._constants.get(name)
        if other:
            same = (other.length, other.width) == (line.length, line.width) and self._shapes.get(name) == shape
            return other.name if same else None
        if constant is None:
            return None if name else ""
        dims = (*[1] * (len(shape) - len(constant.dims)), *constant.dims)
        if all(size == 1 for size in dims):
            return name if len(dims) <= 4 else None
        columns = dims[2] if len(dims) == 3 or shape[3] == 1 else dims[3]
        if columns not in (1, line.width):
            return None
        return self._constant(name, numpy_helper.to_array(constant).reshape(*dims[:2], 1, columns))

    def _pool(self, node: onnx.NodeProto, line: _Line) -> _Line:
        pooled = _Line(name="", length=1, width=1)
        if line.length == line.width:
            return self._emit(node, [line.name], pooled)
        # One window, and a stride that leaves no room for a second one.
        window = helper.make_node(_POOLS[node.op_type], [], list(node.output), node.name)
        return self._emit(window, [line.name], pooled, kernel_shape=[1, line.length], strides=[1, line.width])

    def _emit(self, node: onnx.NodeProto, inputs: Sequence[str], line: _Line, **attributes: Any) -> _Line:
        """Append the node with other inputs and attributes; returns the line as which its output is known."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        kept = [each for each in node.attribute if each.name not in attributes]
        del copy.attribute[:], copy.input[:], copy.output[:]
        copy.input.extend(inputs)
        copy.output.append(self._names.new(f"{node.output[0]}_line"))
        copy.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attributes.items())])
        self.nodes.append(copy)
        return _Line(name=copy.output[0], length=line.length, width=line.width)

    def _columns(self, name: str, shape: tuple[int, ...]) -> str:
        """The tensor as ``[batch, channels, 1, length]``."""
        line = self._lines.get(name)
        if line:
            return line.name if line.length == line.width else self._cut(line)
        return name if self._shapes[name] == shape else self._reshape(name, shape, self._names.new(f"{name}_line"))

    def _restore(self, name: str) -> None:
        line = self._lines.get(name)
        if line and name not in self._restored:
            self._restored.add(name)
            self._reshape(self._columns(name, ()), self._shapes[name], name)

    def _cut(self, line: _Line) -> str:
        bounds = [self._integers(f"{line.name}_{word}", [value]) for word, value in _bounds(line)]
        cut = self._names.new(f"{line.name}_cut")
        self.nodes.append(helper.make_node("Slice", [line.name, *bounds], [cut]))
        return cut

    def _reshape(self, name: str, shape: Sequence[int], output: str) -> str:
        self.nodes.append(helper.make_node("Reshape", [name, self._integers(f"{output}_shape", shape)], [output]))
        return output

    def _integers(self, stem: str, values: Sequence[int]) -> str:
        name = self._names.new(stem)
        self.added.append(helper.make_tensor(name, onnx.TensorProto.INT64, [len(values)], values))
        return name

    def _constant(self, stem: str, array: Any) -> str:
        name = self._names.new(f"{stem}_line")
        self.added.append(numpy_helper.from_array(array, name))
        return name


def _bounds(line: _Line) -> list[tuple[str, int]]:
    return [("begin", 0), ("end", line.length), ("axis", 3)]


def _line_axis(
    node: onnx.NodeProto, source: tuple[int, ...], kernel: tuple[int, ...], output: tuple[int, ...]
) -> int | None:
    """The only axis along which the convolution does anything; None for planes and single positions."""
    if graphs.attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return None
    if len(source) == 3:
        return 2 if output[2] > 1 else None
    pads = graphs.attribute(node, "pads") or [0] * 4
    for axis, other in ((2, 3), (3, 2)):
        is_flat = source[other] == kernel[other] == output[other] == 1 and not pads[other - 2] and not pads[other]
        if len(source) == 4 and is_flat and output[axis] > 1:
            return axis
    return None
