"""Convolutions whose weights meet padding at most positions.

With a dilation as large as the image, as in atrous pyramids of small images (Chen et al. 2017, arXiv:1706.05587), or
with a kernel that is larger than what is left of an axis, a row of weights is multiplied by zeros at every position:
it is cut off. With a somewhat smaller dilation it is at most of them: then each weight becomes a convolution of its own
of what it meets. Their results are added part by part of the image, where other weights meet padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import onnx

from tuner.engines.onnx.rewriting import graphs

Spans = Sequence[tuple[int, int]]
"""Begin and end along each axis of an image."""
_RANK = 2


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Cut or take apart the kernels of convolutions and return the number of these."""
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


_MOST_MET = 0.6
"""Share of the multiplications without padding from which on a kernel stays whole."""
_FEWEST_PRODUCTS = 1 << 24
"""Multiplications by padding that are worth more operators."""


@dataclass(frozen=True, kw_only=True)
class _Met:
    """For each weight along an axis, the first and the last positions of the output at which it meets data."""

    out: int
    places: Sequence[int]
    """What the weights read for the first position."""
    positions: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, size: int, out: int, kernel: int, dilation: int, before: int) -> _Met:
        places = [tap * dilation - before for tap in range(kernel)]
        return cls(out=out, places=places, positions=[(max(0, -place), min(out, size - place)) for place in places])

    @property
    def bands(self) -> list[tuple[int, int]]:
        """Parts of the axis, in each of which the same weights meet data."""
        return list(pairwise(sorted({0, self.out, *(bound for each in self.positions for bound in each)})))

    @property
    def is_everywhere(self) -> bool:
        """Whether some weight meets data at every position, and each at some."""
        is_met = [any(first <= begin and end <= last for first, last in self.positions) for begin, end in self.bands]
        return all(begin < end for begin, end in self.positions) and all(is_met)

    @property
    def count(self) -> int:
        return sum(end - begin for begin, end in self.positions)


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
            is_apart = rank == _RANK and math.prod(strides) == graphs.attribute(node, "group", 1) == 1
            met = [_Met.of(source[2 + at], shape[2 + at], sizes[at], dilations[at], pads[at]) for at in range(rank)]
            return self._apart(node, met) if is_apart and self._pays(kernel, shape, met) else None
        weights = self.array(kernel.name)
        for at, axis in enumerate(axes):
            if axis is not None:
                weights = weights.take(range(axis.first, axis.last + 1), axis=2 + at)
                pads[at], pads[at + rank], sizes[at] = axis.before, axis.after, axis.last + 1 - axis.first
        self.count += 1
        self.need(node.input[0])
        given = [node.input[0], self.constant(kernel.name, weights), *node.input[2:]]
        return graphs.Turned(name=self.emit_like(node, given, kernel_shape=sizes, pads=pads))

    @staticmethod
    def _pays(kernel: onnx.TensorProto, shape: tuple[int, ...], met: Sequence[_Met]) -> bool:
        whole, needed = math.prod([*shape[2:], *kernel.dims[2:]]), math.prod(each.count for each in met)
        is_long = (whole - needed) * shape[0] * math.prod(kernel.dims[:2]) >= _FEWEST_PRODUCTS
        return all(each.is_everywhere for each in met) and needed < _MOST_MET * whole and is_long

    def _apart(self, node: onnx.NodeProto, met: Sequence[_Met]) -> graphs.Turned:
        self.count += 1
        self.need(node.input[0])
        weights, made = self.array(node.input[1]), {}
        for taps in product(*(range(len(each.places)) for each in met)):
            spans = [each.positions[tap] for each, tap in zip(met, taps, strict=True)]
            read = [
                (begin + each.places[tap], end + each.places[tap])
                for (begin, end), each, tap in zip(spans, met, taps, strict=True)
            ]
            data = self._part(node.input[0], read, self.shapes[node.input[0]][2:])
            weight = self.constant(node.input[1], weights[:, :, taps[0] : taps[0] + 1, taps[1] : taps[1] + 1])
            made[taps] = (self.emit("Conv", [data, weight], self.names.new(f"{node.output[0]}_tap")), spans)
        rows = []
        for row in met[0].bands:
            parts = [self._sum(made.values(), (row, column)) for column in met[1].bands]
            rows.append(self._joined(parts, axis=3))
        name = self._joined(rows, axis=2)
        if node.input[2:] and node.input[2]:
            bias = self.constant(node.input[2], self.array(node.input[2]).reshape(1, -1, 1, 1))
            name = self.emit("Add", [name, bias], self.names.new(f"{node.output[0]}_biased"))
        return graphs.Turned(name=name)

    def _sum(self, made: Iterable[tuple[str, Spans]], part: Spans) -> str:
        """Emit what the weights that meet data there add to a part of the image."""
        found = ""
        for name, spans in made:
            if all(begin <= first and last <= end for (begin, end), (first, last) in zip(spans, part, strict=True)):
                inside = [(first - begin, last - begin) for (begin, _), (first, last) in zip(spans, part, strict=True)]
                cut = self._part(name, inside, [end - begin for begin, end in spans])
                found = self.emit("Add", [found, cut], self.names.new(f"{name}_sum")) if found else cut
        return found

    def _part(self, name: str, spans: Spans, sizes: Sequence[int]) -> str:
        """Emit a part of an image."""
        for axis, ((begin, end), size) in enumerate(zip(spans, sizes, strict=True), 2):
            if (begin, end) != (0, size):
                name = self.sliced(name, self.names.new(f"{name}_part"), starts=[begin], ends=[end], axes=[axis])
        return name

    def _joined(self, parts: list[str], axis: int) -> str:
        return self.emit("Concat", parts, self.names.new(f"{parts[0]}_joined"), axis=axis) if parts[1:] else parts[0]

    def restore(self, form: graphs.Turned, name: str) -> None:
        self.emit("Identity", [form.name], name)
