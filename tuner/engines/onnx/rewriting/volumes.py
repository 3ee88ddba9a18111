"""Replacement of convolutions of volumes by convolutions of their planes.

Compilers have few schedules for three dimensions, and none with minimal filtering. The planes of a volume become a
batch of images, the outermost axis of which is the depth; a kernel of several planes becomes one with that many times
the channels, which are those of neighbouring planes. Operators between convolutions keep the form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import AXES_AS_INPUTS

_RANK = 5
_MOST_ELEMENTS = 1 << 26
"""Maximum elements of the neighbouring planes of all planes, which are copies."""
_STEPS_IN_SLICES = 10
"""First operator set in which slices have steps."""


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Replace convolutions of volumes and return their number."""
    return _Slicing(model).run()


@dataclass(frozen=True, kw_only=True)
class _Planes(graphs.Turned):
    """A tensor ``[depth * batch, channels, height, width]`` of a volume ``[batch, channels, depth, height, width]``."""


@dataclass(frozen=True, kw_only=True)
class _Window:
    """What a convolution or a pool does along the three axes."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @classmethod
    def of(cls, node: onnx.NodeProto, kernel: list[int]) -> _Window | None:
        if graphs.attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return None
        strides, dilations = (graphs.attribute(node, name) or [1] * 3 for name in ("strides", "dilations"))
        pads = graphs.attribute(node, "pads") or [0] * 6
        return cls(kernel=kernel, strides=list(strides), dilations=list(dilations), pads=list(pads))

    @property
    def in_planes(self) -> dict[str, Any]:
        """Attributes of the operator on planes."""
        return {
            "kernel_shape": self.kernel[1:],
            "strides": self.strides[1:],
            "dilations": self.dilations[1:],
            "pads": [*self.pads[1:3], *self.pads[4:6]],
            "auto_pad": "NOTSET",
        }


class _Slicing(graphs.GraphWalk[_Planes]):
    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Planes | None:
        if len(shape) != _RANK or self.shapes.get(node.input[0]) is None:
            return None
        if node.op_type == "Conv":
            return self._convolution(node, shape)
        if node.op_type == "ConvTranspose":
            return self._transposed(node, shape)
        if node.op_type in graphs.ELEMENTWISE:
            return self.elementwise(node, shape) if all(self._fits(name, shape) for name in node.input) else None
        if node.op_type == "Concat":
            return self._concatenation(node)
        if node.input[0] not in self.forms:
            return None
        if node.op_type == "InstanceNormalization":
            return self._normalization(node, shape)
        if node.op_type == "BatchNormalization":
            return _Planes(name=self.emit_like(node, [self.forms[node.input[0]].name, *node.input[1:]]))
        return self._pool(node, shape) if node.op_type == "MaxPool" else None

    def restore(self, form: _Planes, name: str) -> None:
        batch, channels, depth, *image = self.shapes[name]
        apart = self.reshaped(form.name, (depth, batch, channels, *image), self.names.new(f"{name}_apart"))
        self.emit("Transpose", [apart], name, perm=[1, 2, 0, 3, 4])

    def _fits(self, name: str, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor broadcasts to this shape in the form of planes, too."""
        by_channel = (1, shape[1], 1, 1, 1)
        if name in self.constants:
            dims = self.constants[name].dims
            return (*[1] * (_RANK - len(dims)), *dims) in (by_channel, (1,) * _RANK)
        given = self.shapes.get(name)
        return not name or given == shape or (shape[0] == 1 and given == by_channel)

    def operand(self, name: str, shape: tuple[int, ...], form: _Planes) -> str | None:  # noqa: ARG002
        if not name or name not in self.constants:
            return self._planes(name) if name else ""
        dims = self.constants[name].dims
        if len(dims) < _RANK - 1:
            return name
        return self.constant(name, self.array(name).reshape(1, -1, 1, 1))

    def _convolution(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Planes | None:
        kernel = self.constants.get(node.input[1])
        window = _Window.of(node, list(kernel.dims[2:])) if kernel else None
        if kernel is None or window is None or not self._can_slice(window, shape):
            return None
        taps, ins = window.kernel[0], kernel.dims[1]
        is_grouped = graphs.attribute(node, "group", 1) > 1
        image = self.shapes[node.input[0]][3:]
        if taps > 1 and (is_grouped or math.prod((shape[0], shape[2], taps, ins, *image)) > _MOST_ELEMENTS):
            return None
        self.count += 1
        slices = self._neighbours(self._padded(node.input[0], window, shape[0]), window, shape)
        data = slices[0]
        if taps > 1:
            data = self.emit("Concat", slices, self.names.new(f"{node.input[0]}_neighbours"), axis=1)
        weights = self.array(kernel.name).swapaxes(1, 2).reshape(kernel.dims[0], taps * ins, *window.kernel[1:])
        given = [data, self.constant(kernel.name, weights), *node.input[2:]]
        return _Planes(name=self.emit_like(node, given, **window.in_planes))

    def _transposed(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Planes | None:
        """Compute the planes of the result that come from the same one as channels, if they come from no other."""
        kernel = self.constants.get(node.input[1])
        window = _Window.of(node, list(kernel.dims[2:])) if kernel else None
        if kernel is None or window is None or shape[0] > 1 or graphs.attribute(node, "group", 1) > 1:
            return None
        taps, more = window.kernel[0], graphs.attribute(node, "output_padding") or [0] * 3
        is_apart = (
            taps == window.strides[0] and window.dilations[0] == 1 and not window.pads[0] + window.pads[3] + more[0]
        )
        bias = [self.constants.get(name) for name in node.input[2:] if name]
        if not is_apart or graphs.attribute(node, "output_shape") or not all(bias):
            return None
        self.count += 1
        weights = self.array(kernel.name).swapaxes(1, 2)
        weights = weights.reshape(kernel.dims[0], taps * kernel.dims[1], *window.kernel[1:])
        repeated = [self.constant(each.name, np.tile(self.array(each.name), taps)) for each in bias if each]
        given = [self._planes(node.input[0]), self.constant(kernel.name, weights), *repeated]
        name = self.emit_like(node, given, **window.in_planes, output_padding=more[1:])
        return _Planes(name=self.reshaped(name, (shape[2], shape[1], *shape[3:]), self.names.new(f"{name}_planes")))

    def _concatenation(self, node: onnx.NodeProto) -> _Planes | None:
        """Join channels."""
        known = [name in self.forms or self.shapes.get(name) is not None for name in node.input]
        if graphs.attribute(node, "axis") not in (1, 1 - _RANK) or not all(known):
            return None
        if not any(name in self.forms for name in node.input):
            return None
        return _Planes(name=self.emit_like(node, [self._planes(name) for name in node.input], axis=1))

    def _normalization(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Planes | None:
        """Normalize one volume. The planes of several are interleaved, so that their means are no single reduction."""
        if shape[0] > 1 or not all(name in self.constants for name in node.input[1:]):
            return None
        scale, bias = (self.constant(name, self.array(name).reshape(1, -1, 1, 1)) for name in node.input[1:])
        planes = self.forms[node.input[0]].name
        mean = self._mean(planes)
        off = self._emitted("Sub", planes, mean)
        epsilon = self.constant("epsilon", np.float32(graphs.attribute(node, "epsilon", 1e-5)))
        variance = self._mean(self._emitted("Mul", off, off))
        factor = self._emitted("Div", scale, self._emitted("Sqrt", self._emitted("Add", variance, epsilon)))
        term = self._emitted("Sub", bias, self._emitted("Mul", mean, factor))
        return _Planes(name=self._emitted("Add", self._emitted("Mul", planes, factor), term))

    def _mean(self, planes: str) -> str:
        """Emit the mean of each channel of one volume, float32 [1, channels, 1, 1]."""
        output, axes = self.names.new(f"{planes}_mean"), [0, 2, 3]
        if self._opset < AXES_AS_INPUTS:
            return self.emit("ReduceMean", [planes], output, axes=axes)
        return self.emit("ReduceMean", [planes, self.integers(f"{output}_axes", axes)], output)

    def _emitted(self, operator: str, *inputs: str) -> str:
        return self.emit(operator, inputs, self.names.new(f"{inputs[0]}_{operator.lower()}"))

    def _pool(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Planes | None:
        window = _Window.of(node, list(graphs.attribute(node, "kernel_shape")))
        if window is None or window.pads[0] or window.pads[3] or graphs.attribute(node, "ceil_mode"):
            return None
        if not self._can_slice(window, shape):
            return None
        attributes = window.in_planes
        if graphs.attribute(node, "dilations") is None:
            # Older operator sets have none.
            del attributes["dilations"]
        pooled = self.emit_like(node, [self.forms[node.input[0]].name], **attributes)
        slices = self._neighbours(pooled, window, shape)
        if len(slices) == 1:
            return _Planes(name=slices[0])
        return _Planes(name=self.emit("Max", slices, self.names.new(f"{node.output[0]}_turned")))

    def _can_slice(self, window: _Window, shape: tuple[int, ...]) -> bool:
        """Return whether the planes of each tap are a slice: with steps, those of several volumes are not."""
        return window.strides[0] == 1 or (shape[0] == 1 and self._opset >= _STEPS_IN_SLICES)

    def _planes(self, name: str) -> str:
        if name in self.forms:
            return self.forms[name].name
        batch, channels, depth, *image = self.shapes[name]
        placed = self.emit("Transpose", [name], self.names.new(f"{name}_placed"), perm=[2, 0, 1, 3, 4])
        planes = self.reshaped(placed, (depth * batch, channels, *image), self.names.new(f"{name}_planes"))
        self.forms[name] = _Planes(name=planes)
        self._restored.add(name)
        return planes

    def _padded(self, name: str, window: _Window, batch: int) -> str:
        before, after = window.pads[0], window.pads[3]
        planes = self._planes(name)
        return self.filled(planes, [before * batch, 0, 0, 0, after * batch, 0, 0, 0]) if before or after else planes

    def _neighbours(self, planes: str, window: _Window, shape: tuple[int, ...]) -> list[str]:
        """Return, for each tap along the depth, the planes that it meets."""
        taps, stride, dilation = window.kernel[0], window.strides[0], window.dilations[0]
        batch, depth = shape[0], shape[2]
        if taps == stride == 1:
            return [planes]
        found = []
        for tap in range(taps):
            first = tap * dilation * batch
            bounds = {"starts": [first], "ends": [first + ((depth - 1) * stride + 1) * batch], "axes": [0]}
            steps = {"steps": [stride]} if stride > 1 else {}
            found.append(self.sliced(planes, self.names.new(f"{planes}_tap"), **bounds, **steps))
        return found
