"""Removal of weights of convolutions that only ever meet padding.

With a dilation as large as the image, as in atrous pyramids of small images (Chen et al. 2017, arXiv:1706.05587), or
with a kernel that is larger than what is left of an axis, a row of weights is multiplied by zeros at every position.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from tuner.engines.onnx.rewriting import graphs


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Cut the kernels of convolutions and return the number of these."""
    return _Cutting(model).run()


@dataclass(frozen=True, kw_only=True)
class _Axis:
    first: int
    """First weight that meets the input."""
    last: int
    before: int
    """Padding of the convolution with the weights from ``first`` to ``last``."""
    after: int


def _axis(size: int, out: int, kernel: int, stride: int, dilation: int, before: int) -> _Axis | None:
    """Return what remains of an axis; None if nothing can be left out."""
    places = [tap * dilation - before for tap in range(kernel)]
    live = [tap for tap, place in enumerate(places) if place + (out - 1) * stride >= 0 and place < size]
    if not live or len(live) == kernel:
        return None
    first, last = live[0], live[-1]
    begin = before - first * dilation
    reach = (last - first) * dilation + 1
    after = max(0, (out - 1) * stride + reach - size - begin)
    is_same = begin >= 0 and (size + begin + after - reach) // stride + 1 == out
    return _Axis(first=first, last=last, before=begin, after=after) if is_same else None


class _Cutting(graphs.GraphWalk[graphs.Turned]):
    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> graphs.Turned | None:
        source, kernel = self.shapes.get(node.input[0]), self.constants.get(node.input[1] if node.input[1:] else "")
        if node.op_type != "Conv" or source is None or kernel is None:
            return None
        rank = len(shape) - 2
        ones = [1] * rank
        if graphs.attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
            return None
        strides, dilations = (graphs.attribute(node, name) or ones for name in ("strides", "dilations"))
        pads = list(graphs.attribute(node, "pads") or [0] * (2 * rank))
        sizes = list(kernel.dims[2:])
        axes = [
            _axis(source[2 + at], shape[2 + at], sizes[at], strides[at], dilations[at], pads[at]) for at in range(rank)
        ]
        if not any(axes):
            return None
        weights = self.array(kernel.name)
        for at, axis in enumerate(axes):
            if axis is not None:
                weights = weights.take(range(axis.first, axis.last + 1), axis=2 + at)
                pads[at], pads[at + rank], sizes[at] = axis.before, axis.after, axis.last + 1 - axis.first
        self.count += 1
        self.need(node.input[0])
        given = [node.input[0], self.constant(kernel.name, weights), *node.input[2:]]
        return graphs.Turned(name=self.emit_like(node, given, kernel_shape=sizes, pads=pads))

    def restore(self, form: graphs.Turned, name: str) -> None:
        self.emit("Identity", [form.name], name)
