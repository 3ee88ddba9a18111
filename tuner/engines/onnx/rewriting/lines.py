"""Rotation of convolutions along a line, so that the line is the innermost axis.

TVM tiles a convolution along the width of its output, by a divisor of it. Imported from one-dimensional layers, the
long axis is the height and the width is 1: one position at a time, and a quarter of the processor's speed. Such a
convolution is converted to height 1, together with the elementwise operators and pools after it, so that nothing
between two of them changes the layout; zeros in front of it become its own padding. A width without good divisors is
padded, and the excess is cut off at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import onnx

from tuner.engines.onnx.rewriting import graphs

_LARGEST_TILE = 31
"""Maximum tile: the number of sum vectors that TVM keeps in registers."""
_MOST_PADDING = 32
_WORTH = 0.95
"""Padding must reduce the cost below this share, because the padding is copied once more."""
_VIEWS = ("Reshape", "Slice", "Squeeze", "Unsqueeze")
_GLOBAL_POOLS = {"GlobalMaxPool": "MaxPool", "GlobalAveragePool": "AveragePool"}
_POOLS = tuple(_GLOBAL_POOLS.values())
_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Rotate or pad convolutions along a line and return their number."""
    return _Turning(model).run()


def padded_width(width: int) -> int:
    """Return the width, at least ``width``, that TVM computes fastest; ``width`` itself unless another pays off."""
    best = min(range(width, width + _MOST_PADDING + 1), key=_cost)
    return best if _cost(best) < _WORTH * _cost(width) else width


def _cost(width: int) -> float:
    """Return the relative cost of a width.

    Measured with 256 to 512 channels: 25 % of peak with tiles of 1, 70 % with 4, 95 % with 16 and more.
    """
    tile = next(size for size in range(min(width, _LARGEST_TILE), 0, -1) if width % size == 0)
    return width / min(0.95, 0.1 + 0.15 * tile)


@dataclass(frozen=True, kw_only=True)
class _Line(graphs.Turned):
    """A tensor ``[batch, channels, 1, width]`` whose first ``length`` columns are another's elements in order."""

    length: int
    width: int
    zeros: tuple[int, int] = (0, 0)
    """Zeros before and after these elements, not in the tensor: the next convolution adds them to its own padding."""


class _Turning(graphs.GraphWalk[_Line]):
    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Line | None:
        if node.op_type in _REDUCTIONS:
            line = self.forms.get(node.input[0])
            return self._reduced(node, line) if line and not any(line.zeros) else None
        if len(shape) < 3:
            return None
        if node.op_type == "Conv":
            return self._convolution(node, shape)
        if node.op_type in graphs.ELEMENTWISE:
            return self.elementwise(node, shape)
        line = self.forms.get(node.input[0])
        if line is None or any(line.zeros):
            return None
        if node.op_type == "Pad":
            return self._padded(node, line)
        if node.op_type in _VIEWS:
            return line if self._is_view(node, shape, line) else None
        if node.op_type == "BatchNormalization":
            return replace(line, name=self.emit_like(node, [line.name, *node.input[1:]]))
        if node.op_type in _POOLS:
            return self._pool(node, shape, line)
        return self._global_pool(node, line) if node.op_type in _GLOBAL_POOLS else None

    def restore(self, form: _Line, name: str) -> None:
        before, after = form.zeros
        cut = self._cut(form)
        whole = self.filled(cut, [0, 0, 0, before, 0, 0, 0, after]) if any(form.zeros) else cut
        self.reshaped(whole, self.shapes[name], name)

    def _convolution(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Line | None:
        source, kernel = self.shapes.get(node.input[0]), self.constants.get(node.input[1])
        if source is None or kernel is None:
            return None
        axis = _line_axis(node, source, tuple(kernel.dims), shape)
        if axis is None:
            return None
        length = shape[axis]
        width = padded_width(length)
        if axis == 3 and width == length and node.input[0] not in self.forms:
            return None
        data = self._columns(node.input[0], (*source[:2], 1, source[axis]))
        before, after = self.forms[node.input[0]].zeros if node.input[0] in self.forms else (0, 0)
        weights = self.array(kernel.name).reshape(*kernel.dims[:2], 1, kernel.dims[axis])
        rank, along = len(shape) - 2, axis - 2
        ones, none = [1] * rank, [0] * (2 * rank)
        stride = (graphs.attribute(node, "strides") or ones)[along]
        pads = graphs.attribute(node, "pads") or none
        self.count += 1
        name = self.emit_like(
            node,
            [data, self.constant(kernel.name, weights), *node.input[2:]],
            kernel_shape=[1, kernel.dims[axis]],
            strides=[1, stride],
            dilations=[1, (graphs.attribute(node, "dilations") or ones)[along]],
            pads=[0, before + pads[along], 0, after + pads[along + rank] + (width - length) * stride],
            auto_pad="NOTSET",
        )
        return _Line(name=name, length=length, width=width)

    def _is_view(self, node: onnx.NodeProto, shape: tuple[int, ...], line: _Line) -> bool:
        source = self.shapes[node.input[0]]
        if node.op_type == "Slice":
            is_forward = len(node.input) < 5 or (
                node.input[4] in self.constants and all(self.array(node.input[4]) == 1)
            )
            return is_forward and shape == source
        plain = (*source[:2], line.length)
        return shape in (plain, (*plain, 1), (*source[:2], 1, line.length))

    def operand(self, name: str, shape: tuple[int, ...], form: _Line) -> str | None:
        other, constant, own = self.forms.get(name), self.constants.get(name), self.shapes.get(name)
        if constant is None and own and len(own) == len(shape) and math.prod(own[2:]) == 1 != math.prod(shape[2:]):
            # One number for each channel, or for all of them.
            return self._columns(name, (*own[:2], 1, 1))
        if other:
            same = replace(other, name=form.name) == replace(form, zeros=(0, 0)) and self.shapes.get(name) == shape
            return other.name if same else None
        if constant is None:
            return None if name else ""
        dims = (*[1] * (len(shape) - len(constant.dims)), *constant.dims)
        if all(size == 1 for size in dims):
            return name
        columns = dims[2] if len(dims) == 3 or shape[3] == 1 else dims[3]
        if columns not in (1, form.width):
            return None
        return self.constant(name, self.array(name).reshape(*dims[:2], 1, columns))

    def _padded(self, node: onnx.NodeProto, line: _Line) -> _Line | None:
        source = self.shapes[node.input[0]]
        pads = self._pads(node, len(source))
        if pads is None or min(pads) < 0:
            return None
        axis = _long_axis(source)
        before, after = pads[axis], pads[axis + len(source)]
        if sum(pads) != before + after:
            return None
        if graphs.attribute(node, "mode", b"constant") == b"constant":
            return replace(line, zeros=(before, after))
        turned = [0, 0, 0, before, 0, 0, 0, after]
        if len(node.input) == 1:
            name = self.emit_like(node, [self._cut(line)], pads=turned)
        else:
            name = self.emit_like(node, [self._cut(line), self.integers(f"{node.output[0]}_pads", turned)])
        length = line.length + before + after
        return _Line(name=name, length=length, width=length)

    def _pads(self, node: onnx.NodeProto, rank: int) -> list[int] | None:
        """Return the widths of a ``Pad`` before each axis, then after each; None if it puts other numbers there than
        zeros or the tensor's own."""
        if len(node.input) > 3:
            return None
        if len(node.input) == 1:
            return None if graphs.attribute(node, "value") else list(graphs.attribute(node, "pads"))
        value = node.input[2] if len(node.input) == 3 else ""
        if node.input[1] not in self.constants or (value and (value not in self.constants or self.array(value).any())):
            return None
        pads = [int(each) for each in self.array(node.input[1])]
        return pads if len(pads) == 2 * rank else None

    def _pool(self, node: onnx.NodeProto, shape: tuple[int, ...], line: _Line) -> _Line | None:
        """Pool along the line; the excess after its ``length`` is cut off where a window that counts would read it."""
        rank, axis = len(shape) - 2, _long_axis(self.shapes[node.input[0]])
        along, ones = axis - 2, [1] * rank
        given = [graphs.attribute(node, name) or ones for name in ("kernel_shape", "strides", "dilations")]
        window, stride, dilation = (each[along] for each in given)
        pads = graphs.attribute(node, "pads") or [0] * (2 * rank)
        before, after = pads[along], pads[along + rank]
        is_plain = graphs.attribute(node, "auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
        is_along = sum(pads) == before + after and all(math.prod(each) == each[along] for each in given)
        if not is_plain or not is_along or graphs.attribute(node, "ceil_mode"):
            return None
        width = line.length if after else line.width
        attributes = {"kernel_shape": [1, window], "strides": [1, stride], "pads": [0, before, 0, after]}
        if graphs.attribute(node, "dilations"):
            attributes["dilations"] = [1, dilation]
        name = self.emit_like(node, [self._cut(line) if after else line.name], **attributes)
        columns = (width + before + after - dilation * (window - 1) - 1) // stride + 1
        return _Line(name=name, length=shape[axis], width=columns)

    def _global_pool(self, node: onnx.NodeProto, line: _Line) -> _Line:
        if line.length == line.width:
            return _Line(name=self.emit_like(node, [line.name]), length=1, width=1)
        # One window, with a stride that leaves no room for a second one.
        window = {"kernel_shape": [1, line.length], "strides": [1, line.width]}
        name = self.emit(_GLOBAL_POOLS[node.op_type], [line.name], self.names.new(f"{node.output[0]}_turned"), **window)
        return _Line(name=name, length=1, width=1)

    def _reduced(self, node: onnx.NodeProto, line: _Line) -> _Line | None:
        """Reduce along the line, and perhaps over channels."""
        reduced, rank = self.reduced_axes(node), len(self.shapes[node.input[0]])
        is_along = reduced in ({*range(1, rank)}, {*range(2, rank)}, {_long_axis(self.shapes[node.input[0]])})
        if not is_along or line.length != line.width:
            return None
        axes = [*range(min(reduced), 4)]
        if len(node.input) > 1:
            name = self.emit_like(node, [line.name, self.integers(f"{node.output[0]}_axes", axes)], keepdims=1)
        else:
            name = self.emit_like(node, [line.name], axes=axes, keepdims=1)
        return _Line(name=name, length=1, width=1)

    def _columns(self, name: str, shape: tuple[int, ...]) -> str:
        """Return the name of the tensor as ``[batch, channels, 1, length]``."""
        if name in self.forms:
            return self._cut(self.forms[name])
        return name if self.shapes[name] == shape else self.reshaped(name, shape, self.names.new(f"{name}_turned"))

    def _cut(self, line: _Line) -> str:
        return line.name if line.length == line.width else self.cut(line.name, axis=3, end=line.length)


def _long_axis(shape: tuple[int, ...]) -> int:
    """Return the axis of a line in a tensor of its original shape."""
    return 2 if len(shape) == 3 or shape[3] == 1 else 3


def _line_axis(
    node: onnx.NodeProto, source: tuple[int, ...], kernel: tuple[int, ...], output: tuple[int, ...]
) -> int | None:
    """Return the only axis along which the convolution has an effect; None for planes and single positions."""
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
