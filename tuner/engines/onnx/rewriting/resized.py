"""Replacement of linear resizing of few channels by two products with constant matrices.

Both engines compute the operator in vectors of channels. With 21 of them, as in segmentation, they read and weigh one
number after the other; the products fill vectors with pixels.
"""

from __future__ import annotations

import onnx

from tuner.engines.onnx.rewriting.plain import resizing

_MOST_VECTORS = 8
"""Length of a line, in vectors, up to which summing all of it costs less than four single numbers."""


def apply(model: onnx.ModelProto, lanes: int) -> int:
    """Replace operators and return their number."""

    def stays(node: onnx.NodeProto, axes: list[resizing.Axis], mode: str, places: str) -> bool:
        if mode != "linear" or not resizing.is_native(node, axes, mode, places):
            return True
        return axes[1].before % lanes == 0 or any(each.before > _MOST_VECTORS * lanes for each in axes[2:])

    return resizing.replace(model, stays)
