"""Replacement of transposed convolutions by convolutions whose results are then interleaved.

With stride ``s``, every ``s``-th row and column of the output (a phase) is a separate convolution of the input. All ``s
* s`` phases become one convolution with that many times the channels (Shi et al. 2016, "Is the deconvolution layer the
same as a convolutional layer?", arXiv:1609.07009), followed by depth to space. Subsequent elementwise operators and
transposed convolutions without overlap are computed before that, where channels fill vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs

_MOST_WORK = 4
"""Maximum growth of the number of products, for zeros: TVM's transposed convolution runs at 7 % of peak."""
_MOST_PER_ELEMENT = 64
"""Maximum products, most of them with 0, to save one element a conversion from depth to space and back."""


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Replace transposed convolutions and return their number."""
    _Raising(model).run()
    return _Packing(model).run()


@dataclass(frozen=True, kw_only=True)
class _Packed(graphs.Turned):
    """A tensor ``[batch, rows * columns * channels, height, width]``.

    It represents one that is ``rows`` times as high and ``columns`` times as wide; the phases are the outer part of its
    channels. ``top`` rows and ``left`` columns are cut off afterwards, and at the other ends what is then too much.
    """

    rows: int
    columns: int
    top: int = 0
    left: int = 0

    @property
    def phases(self) -> int:
        return self.rows * self.columns


class _Raising(graphs.GraphWalk[graphs.Turned]):
    """Makes transposed convolutions along a line ones of images with a single row."""

    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> graphs.Turned | None:
        source, kernel = self.shapes.get(node.input[0]), self.constants.get(node.input[1] if node.input[1:] else "")
        if node.op_type != "ConvTranspose" or len(shape) != 3 or source is None or kernel is None:
            return None
        usual = {"dilations": 1, "kernel_shape": kernel.dims[2], "output_padding": 0, "strides": 1}
        along = {name: (graphs.attribute(node, name) or [value])[0] for name, value in usual.items()}
        first, last = graphs.attribute(node, "pads") or (0, 0)
        if graphs.attribute(node, "auto_pad", b"NOTSET") != b"NOTSET" or graphs.attribute(node, "output_shape"):
            return None
        self.count += 1
        self.need(node.input[0])
        data = self.reshaped(node.input[0], (*source[:2], 1, source[2]), self.names.new(f"{node.input[0]}_turned"))
        weights = self.constant(kernel.name, self.array(kernel.name)[:, :, None])
        images = {name: [0 if name == "output_padding" else 1, value] for name, value in along.items()}
        name = self.emit_like(node, [data, weights, *node.input[2:]], **images, pads=[0, first, 0, last])
        return graphs.Turned(name=name)

    def restore(self, form: graphs.Turned, name: str) -> None:
        self.reshaped(form.name, self.shapes[name], name)


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """One axis of a transposed convolution, as a stride-1 convolution that computes all phases."""

    stride: int
    kernel: int
    before: int
    """Leading padding that the transposed convolution cuts off, without ``cut``."""
    cut: int
    """Leading outputs that are computed beside the others and cut off afterwards."""
    first: int
    """Offset of the first input that contributes to the first phase."""
    size: int
    """Size of the convolution's kernel."""
    pads: tuple[int, int]

    def outputs(self, length: int) -> int:
        """Return how many outputs the convolution has of an input of this length."""
        return length + sum(self.pads) - self.size + 1

    def taps(self) -> list[tuple[int, int, int]]:
        """Return ``(phase, position in the new kernel, position in the old one)`` of every weight."""
        found = []
        for phase in range(self.stride):
            for place in range(self.size):
                old = phase + self.before - self.stride * (self.first + place)
                if 0 <= old < self.kernel:
                    found.append((phase, place, old))
        return found


def _axis(stride: int, kernel: int, before: int, length: int, output: int) -> _Axis | None:
    """Convert an axis to the form with the fewest products, and of these the one that cuts off least.

    If padding is cut off afterwards, all phases read the same inputs: a kernel of 4 with stride 2 has 2 taps, not 3.
    """
    found = [each for cut in range(stride) if (each := _cut_axis(stride, kernel, before, length, output, cut))]
    return min(found, key=lambda each: each.size * each.outputs(length), default=None)


def _cut_axis(stride: int, kernel: int, before: int, length: int, output: int, cut: int) -> _Axis | None:
    """Convert an axis: output ``y`` depends on input ``h`` by weight ``k`` if ``y + before == stride * h + k``."""
    before -= cut
    offsets = [
        (phase + before - old) // stride
        for phase in range(stride)
        for old in range(kernel)
        if (phase + before - old) % stride == 0
    ]
    if not offsets:
        return None
    first, size = min(offsets), max(offsets) - min(offsets) + 1
    after = math.ceil((output + cut) / stride) - length + first + size - 1
    if first > 0 or after < 0:
        return None
    return _Axis(stride=stride, kernel=kernel, before=before, cut=cut, first=first, size=size, pads=(-first, after))


class _Packing(graphs.GraphWalk[_Packed]):
    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Packed | None:
        if len(shape) != 4:
            return None
        if node.op_type == "ConvTranspose":
            return self._transposed(node, shape)
        if node.op_type in graphs.ELEMENTWISE:
            return self.elementwise(node, shape)
        packed = self.forms.get(node.input[0])
        if packed and node.op_type == "BatchNormalization" and all(name in self.constants for name in node.input[1:]):
            repeated = [self._repeated(name, packed.phases, axis=0) for name in node.input[1:]]
            return replace(packed, name=self.emit_like(node, [packed.name, *repeated]))
        return None

    def restore(self, form: _Packed, name: str) -> None:
        batch, channels, height, width = self.shapes[name]
        inner_height, inner_width = (
            math.ceil(size / times)
            for size, times in ((form.top + height, form.rows), (form.left + width, form.columns))
        )
        shape = (batch, channels, inner_height * form.rows, inner_width * form.columns)
        is_whole = shape == self.shapes[name]
        whole = name if is_whole else self.names.new(f"{name}_whole")
        if form.rows == form.columns:
            self.emit("DepthToSpace", [form.name], whole, blocksize=form.rows, mode="DCR")
        else:
            inner = (batch, form.rows, form.columns, channels, inner_height, inner_width)
            phases = self.reshaped(form.name, inner, self.names.new(f"{name}_phases"))
            placed = self.emit("Transpose", [phases], self.names.new(f"{name}_placed"), perm=[0, 3, 4, 1, 5, 2])
            self.reshaped(placed, shape, whole)
        if not is_whole:
            ends = [form.top + height, form.left + width]
            self.sliced(whole, name, starts=[form.top, form.left], ends=ends, axes=[2, 3])

    def _transposed(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Packed | None:
        source = self.shapes.get(node.input[0])
        if source is None or any(name not in self.constants for name in node.input[1:] if name):
            return None
        axes = _axes(node, source, tuple(self.constants[node.input[1]].dims), shape)
        if axes is None:
            return None
        weights = _phases(self.array(node.input[1]), *axes)
        packed = _Packed(rows=axes[0].stride, columns=axes[1].stride, top=axes[0].cut, left=axes[1].cut)
        data = node.input[0]
        before = self.forms.get(data)
        if before and weights.shape[-2:] == (1, 1) and before.phases * weights[..., 0, 0, 0].size <= _MOST_PER_ELEMENT:
            data, weights = before.name, _of_each_phase(weights, before)
            packed = _Packed(
                rows=before.rows * packed.rows, columns=before.columns * packed.columns,
                top=before.top * packed.rows, left=before.left * packed.columns,
            )  # fmt: skip
        self.need(data)
        weights = weights.reshape(-1, *weights.shape[-3:])
        bias = [self._repeated(name, packed.phases, axis=0) for name in node.input[2:] if name]
        self.count += 1
        name = self.emit(
            "Conv",
            [data, self.constant(node.input[1], weights), *bias],
            self.names.new(f"{node.output[0]}_turned"),
            kernel_shape=weights.shape[2:],
            pads=[axis.pads[side] for side in (0, 1) for axis in axes],
        )
        return replace(packed, name=name)

    def operand(self, name: str, shape: tuple[int, ...], form: _Packed) -> str | None:
        other, constant = self.forms.get(name), self.constants.get(name)
        if other:
            is_same = replace(other, name=form.name) == form and self.shapes.get(name) == shape
            return other.name if is_same else None
        if constant is None:
            return None if name else ""
        dims = (*[1] * (4 - len(constant.dims)), *constant.dims)
        if all(size == 1 for size in dims):
            return name
        return self._repeated(name, form.phases, axis=1, shape=dims) if dims == (1, shape[1], 1, 1) else None

    def _repeated(self, name: str, times: int, *, axis: int, shape: tuple[int, ...] | None = None) -> str:
        array = self.array(name)
        return self.constant(name, np.concatenate([array.reshape(shape or array.shape)] * times, axis))


def _axes(
    node: onnx.NodeProto, source: tuple[int, ...], kernel: tuple[int, ...], output: tuple[int, ...]
) -> tuple[_Axis, _Axis] | None:
    usual = {"auto_pad": b"NOTSET", "group": 1, "dilations": [1, 1], "output_shape": None}
    if any((graphs.attribute(node, name) or value) != value for name, value in usual.items()):
        return None
    strides = graphs.attribute(node, "strides") or [1, 1]
    pads = graphs.attribute(node, "pads") or [0] * 4
    rows, columns = (
        _axis(strides[at], kernel[2 + at], pads[at], length=source[2 + at], output=output[2 + at]) for at in (0, 1)
    )
    if rows is None or columns is None:
        return None
    work = rows.stride * rows.size * columns.stride * columns.size
    return (rows, columns) if work <= _MOST_WORK * kernel[2] * kernel[3] else None


def _phases(kernel: Any, rows: _Axis, columns: _Axis) -> Any:
    """Convert a kernel ``[ins, outs, height, width]`` to ``[rows, columns, outs, ins, height, width]``."""
    ins, outs = kernel.shape[:2]
    weights = np.zeros((rows.stride, columns.stride, outs, ins, rows.size, columns.size), kernel.dtype)
    for row, above, old_row in rows.taps():
        for column, left, old_column in columns.taps():
            weights[row, column, :, :, above, left] = kernel[:, :, old_row, old_column].T
    return weights


def _of_each_phase(weights: Any, packed: _Packed) -> Any:
    """Return 1×1 weights that do the same to the channels of every phase and nothing across phases."""
    rows, columns, outs, ins = weights.shape[:4]
    split = np.zeros(
        (packed.rows, rows, packed.columns, columns, outs, packed.rows, packed.columns, ins), weights.dtype
    )
    for row in range(packed.rows):
        for column in range(packed.columns):
            split[row, :, column, :, :, row, column] = weights[..., 0, 0]
    return split.reshape(-1, packed.phases * ins, 1, 1)
