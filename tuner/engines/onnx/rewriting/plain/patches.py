"""Replacement of operators on an image's patches by convolutions: ``Col2Im`` and ``DeformConv``."""

from __future__ import annotations

import math

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacements, replace

_METHODS = {("", "Col2Im"): "_images", ("", "DeformConv"): "_deformed"}
OPERATORS = frozenset(operator for _, operator in _METHODS)
_LINEAR = 20
"""First operator set whose ``GridSample`` names its modes as ``Resize`` does."""


class _Patches(Replacements):
    methods = _METHODS

    def _images(self, node: onnx.NodeProto) -> None:
        """Emit a transposed convolution that puts element ``i`` of a patch at its place ``i``."""
        shape, image, block = self._e.shapes[node.input[0]], *map(self._e.value, list(node.input)[1:])
        if image is None or block is None:
            raise Declined
        ones = [1] * len(block)
        strides, dilations = (graphs.attribute(node, name, ones) for name in ("strides", "dilations"))
        pads = graphs.attribute(node, "pads", [0, 0] * len(block))
        spans = [(size - 1) * wide + 1 for size, wide in zip(block, dilations, strict=True)]
        padded = [int(size) + sum(pads[axis :: len(block)]) for axis, size in enumerate(image)]
        counts = [(size - span) // stride + 1 for size, span, stride in zip(padded, spans, strides, strict=True)]
        left = [
            size - (count - 1) * stride - span
            for size, count, stride, span in zip(padded, counts, strides, spans, strict=True)
        ]
        size, batch = math.prod(map(int, block)), shape[0]
        channels = shape[1] // size
        patches = self._e.reshape(node.input[0], (batch * channels, size, *counts))
        # Relay has no transposed convolution with dilations.
        kernels = np.zeros((size, 1, *spans))
        for element, place in enumerate(np.ndindex(*block)):
            kernels[(element, 0, *(step * wide for step, wide in zip(place, dilations, strict=True)))] = 1
        given = [patches, self._e.constant(kernels)]
        made = self._e.emit("ConvTranspose", given, strides=strides, pads=pads, output_padding=left)
        self._e.reshape(made, (batch, channels, *map(int, image)), node.output[0])

    def _deformed(self, node: onnx.NodeProto) -> None:
        """Emit samples of the image at all places of the kernel, and their convolution."""
        given, weight, offset, bias, mask = [*node.input, "", ""][:5]
        (batch, channels, height, width), made = self._e.shapes[given], self._e.shapes[offset]
        kernel, rows, columns = self._e.shapes[weight], *made[2:]
        groups = graphs.attribute(node, "offset_group", 1)
        size = kernel[2] * kernel[3]
        strides, dilations = (graphs.attribute(node, name, [1, 1]) for name in ("strides", "dilations"))
        pads = graphs.attribute(node, "pads", [0] * 4)
        y, x, i, j = np.meshgrid(*map(np.arange, (kernel[2], kernel[3], rows, columns)), indexing="ij")
        places = np.stack([
            i * strides[0] - pads[0] + y * dilations[0],
            j * strides[1] - pads[1] + x * dilations[1],
        ]).reshape(2, size * rows, columns)  # fmt: skip
        # From pixels to the range between -1 and 1; places first have rows, GridSample has columns first.
        scales = np.array([2 / height, 2 / width]).reshape(2, 1, 1)
        origin = (places + 0.5) * scales - 1
        moved = self._e.reshape(offset, (batch * groups, size, 2, rows * columns))
        moved = self._e.emit("Transpose", [moved], perm=(0, 2, 1, 3))
        moved = self._e.reshape(moved, (batch * groups, 2, size * rows, columns))
        moved = self._e.emit("Mul", [moved, self._e.constant(scales)])
        moved = self._e.emit("Add", [moved, self._e.constant(origin)])
        down, across = self._e.split(self._e.emit("Transpose", [moved], perm=(0, 2, 3, 1)), 3, [1, 1])
        grid = self._e.emit("Concat", [across, down], axis=3)
        image = self._e.reshape(given, (batch * groups, channels // groups, height, width))
        mode = "linear" if self._e.opset >= _LINEAR else "bilinear"
        sampled = self._e.emit("GridSample", [image, grid], mode=mode, padding_mode="zeros", align_corners=0)
        if mask:
            weights = self._e.reshape(mask, (batch * groups, 1, size * rows, columns))
            sampled = self._e.emit("Mul", [sampled, weights])
        columns_of = self._e.reshape(sampled, (batch, channels, size, rows * columns))
        flat = self._e.reshape(weight, (*kernel[:2], size, 1))
        group = graphs.attribute(node, "group", 1)
        found = self._e.emit("Conv", [columns_of, flat, *([bias] if bias else [])], group=group)
        self._e.reshape(found, (batch, kernel[0], rows, columns), node.output[0])


def apply(model: onnx.ModelProto) -> int:
    """Replace operators on patches and return their number."""
    return replace(model, _Patches)
