"""Padding of grouped convolutions so that their groups fill vectors.

A compiler blocks the channels of one group: 34, for example, is divisible only by 2 and 17, which fit no vector. Each
group's channels are padded with zeros to whole vectors and stay padded through elementwise operators, pools, depthwise
convolutions and further convolutions with the same number of groups; before other operators the zeros are cut out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs

_WIDEST = 8
"""Maximum lanes to fill: filling half of 16 is worth more than what filling all of them would add."""
_MOST_PADDING = 0.25
"""Maximum share of added channels in a group."""
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")


def apply(model: onnx.ModelProto, lanes: int) -> int:
    """Pad grouped convolutions and return their number."""
    return _Padding(model, min(lanes, _WIDEST)).run()


def padded(channels: int, lanes: int) -> int:
    """Return the channels rounded up to whole vectors if that adds few enough zeros, else unchanged."""
    whole = -(-channels // lanes) * lanes
    return whole if whole <= (1 + _MOST_PADDING) * channels else channels


@dataclass(frozen=True, kw_only=True)
class _Grouped(graphs.Turned):
    """A tensor ``[batch, groups * whole, height, width]``.

    Each group has ``real`` channels followed by arbitrary values, on which no result depends.
    """

    groups: int
    real: int
    whole: int


class _Padding(graphs.GraphWalk[_Grouped]):
    def __init__(self, model: onnx.ModelProto, lanes: int) -> None:
        super().__init__(model)
        self._lanes = lanes
        self._converted: dict[tuple[str, int], _Grouped] = {}
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        self._readers = readers

    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Grouped | None:
        if len(shape) != 4:
            return None
        if node.op_type == "Conv":
            return self._depthwise(node) if self._is_depthwise(node) else self._convolution(node)
        if node.op_type in graphs.ELEMENTWISE:
            return self.elementwise(node, shape)
        form = self.forms.get(node.input[0])
        if form and node.op_type in _POOLS:
            return replace(form, name=self.emit_like(node, [form.name]))
        if form and node.op_type == "BatchNormalization" and all(name in self.constants for name in node.input[1:]):
            filled = [self._filled(name, form, axis=0) for name in node.input[1:]]
            return replace(form, name=self.emit_like(node, [form.name, *filled]))
        return None

    def restore(self, form: _Grouped, name: str) -> None:
        batch, _, height, width = self.shapes[name]
        split = self._split(form.name, name, (batch, form.groups, form.whole, height, width))
        cut = self.cut(split, axis=2, end=form.real)
        self.reshaped(cut, self.shapes[name], name)

    def _convolution(self, node: onnx.NodeProto) -> _Grouped | None:
        groups = self._groups(node)
        if groups is None:
            return None
        filters, depth, *_ = self.constants[node.input[1]].dims
        outs, known = filters // groups, self.forms.get(node.input[0])
        made = _Grouped(name="", groups=groups, real=outs, whole=padded(outs, self._lanes))
        fits = known is not None and (known.groups, known.real) == (groups, depth)
        if not fits and made.whole == outs:
            return None
        source = known if fits else self._convert(node.input[0], groups) if depth >= self._lanes else None
        weights = self._spread(self.array(node.input[1]), made, axis=0)
        if source:
            weights = np.pad(weights, ((0, 0), (0, source.whole - depth), (0, 0), (0, 0)))
        else:
            self.need(node.input[0])
        inputs = [source.name if source else node.input[0], self.constant(node.input[1], weights)]
        inputs += [self._filled(name, made, axis=0) for name in node.input[2:] if name]
        self.count += 1
        return replace(made, name=self.emit_like(node, inputs))

    def _depthwise(self, node: onnx.NodeProto) -> _Grouped | None:
        form = self.forms.get(node.input[0]) or self._wanted(node)
        if form is None or any(name not in self.constants for name in node.input[1:] if name):
            return None
        inputs = [form.name, *(self._filled(name, form, axis=0) for name in node.input[1:] if name)]
        return replace(form, name=self.emit_like(node, inputs, group=form.groups * form.whole))

    def _wanted(self, node: onnx.NodeProto) -> _Grouped | None:
        """Return the padded input of a depthwise convolution read only by a convolution with padded groups."""
        readers = self._readers.get(node.output[0], [])
        groups = self._groups(readers[0]) if len(readers) == 1 and readers[0].op_type == "Conv" else None
        channels = self.shapes[node.output[0]][1]
        if groups is None or channels // groups == padded(channels // groups, self._lanes):
            return None
        return self._convert(node.input[0], groups)

    def operand(self, name: str, shape: tuple[int, ...], form: _Grouped) -> str | None:
        if not name:
            return ""
        if name in self.constants:
            dims = (*[1] * (4 - len(self.constants[name].dims)), *self.constants[name].dims)
            if dims[1] == 1:
                return name
            if dims[1] != shape[1]:
                return None
            # The last channel's values, by which anything may be divided.
            return self._filled(name, form, axis=1, shape=dims, mode="edge")
        other = self.forms.get(name)
        if self.shapes.get(name) != shape:
            return None
        if other is None or replace(other, name="") != replace(form, name=""):
            other = self._convert(name, form.groups)
        return other.name if replace(other, name="") == replace(form, name="") else None

    def _convert(self, name: str, groups: int) -> _Grouped:
        key = (name, groups)
        if key not in self._converted:
            self.need(name)
            batch, channels, height, width = self.shapes[name]
            real = channels // groups
            whole = padded(real, self._lanes)
            made = name
            if whole > real:
                split = self._split(name, name, (batch, groups, real, height, width))
                filled = self.filled(split, [0] * 7 + [whole - real, 0, 0])
                shape = (batch, groups * whole, height, width)
                made = self.reshaped(filled, shape, self.names.new(f"{name}_grouped"))
            self._converted[key] = _Grouped(name=made, groups=groups, real=real, whole=whole)
        return self._converted[key]

    def _split(self, name: str, stem: str, shape: tuple[int, ...]) -> str:
        return self.reshaped(name, shape, self.names.new(f"{stem}_split"))

    def _filled(
        self, name: str, form: _Grouped, *, axis: int, shape: tuple[int, ...] | None = None, mode: str = "constant"
    ) -> str:
        array = self.array(name)
        return self.constant(name, self._spread(array.reshape(shape or array.shape), form, axis=axis, mode=mode))

    def _spread(self, array: Any, form: _Grouped, *, axis: int, mode: str = "constant") -> Any:
        """Pad each group's channels with zeros, or as another ``mode`` of ``numpy.pad`` does."""
        before, after = array.shape[:axis], array.shape[axis + 1 :]
        split = array.reshape(*before, form.groups, form.real, *after)
        pads = [(0, 0)] * split.ndim
        pads[axis + 1] = (0, form.whole - form.real)
        return np.pad(split, pads, mode=mode).reshape(*before, form.groups * form.whole, *after)

    def _groups(self, node: onnx.NodeProto) -> int | None:
        """Return the groups of a grouped, non-depthwise convolution with constant weights, else None."""
        groups = graphs.attribute(node, "group", 1)
        if (
            groups == 1
            or self._is_depthwise(node)
            or any(name not in self.constants for name in node.input[1:] if name)
        ):
            return None
        return int(groups) if len(self.constants[node.input[1]].dims) == 4 else None

    def _is_depthwise(self, node: onnx.NodeProto) -> bool:
        groups, shapes = (
            graphs.attribute(node, "group", 1),
            (self.shapes.get(node.input[0]), self.shapes.get(node.output[0])),
        )
        return groups > 1 and all(shape is not None and shape[1] == groups for shape in shapes)
