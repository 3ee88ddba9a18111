"""Padding of sequences whose length no tile divides, such as the 197 tokens of a vision transformer.

TVM's schedules split rows and columns of matrix products by their divisors. 197 is a prime: a product of so many rows
runs row by row, and one of so many columns without vectors. The sequence is padded before the first such product and
stays so through the network: what the added positions hold never reaches the others. Only a softmax along the sequence
and the product after it combine positions; there the added ones are masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs

_TILES = range(4, 25)
"""Numbers of rows that are worth a tile of registers."""
_SHORTEST = 16
"""Products of fewer rows or columns take no time that matters."""
_WASTE, _MOST_WASTE = 0.1, 0.2
"""Share of positions added up to whole vectors, and up to half ones."""
_NEVER = -np.inf
"""What a mask adds to the padding: less than the lowest number, with which networks mask whole rows of their own."""
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
_POINTWISE = (*graphs.ELEMENTWISE, "Where")
_CONVERSIONS = ("Cast", "DequantizeLinear", "QuantizeLinear")
_SOFTMAX_OF_ONE_AXIS = 13
"""First operator set in which softmax does not flatten what follows its axis."""


def apply(model: onnx.ModelProto, lanes: int) -> int:
    """Pad sequences and return the number of products with padding."""
    return _Padding(model, lanes).run()


def padded(length: int, lanes: int) -> int | None:
    """Return a length rounded up to whole vectors, or half ones if they add too many; None if these do, too."""
    for unit, most in ((lanes, _WASTE), (max(lanes // 2, 1), _MOST_WASTE)):
        whole = -(-length // unit) * unit
        if 0 < whole - length <= most * length:
            return whole
    return None


def has_bad_rows(length: int) -> bool:
    """Return whether no divisor of a number of rows is a good tile."""
    return length >= _SHORTEST and all(length % tile for tile in _TILES)


def has_bad_columns(length: int, lanes: int) -> bool:
    """Return whether a number of columns has no whole vectors, nor half ones."""
    return length >= _SHORTEST and length % max(lanes // 2, 1) != 0


@dataclass(frozen=True, kw_only=True)
class _Padded(graphs.Turned):
    """A tensor with padding after its elements."""

    axes: Mapping[int, bool] = field(default_factory=dict)
    """The padded axes, and whether the padding is 0."""

    def moved(self, places: Mapping[int, int]) -> Mapping[int, bool]:
        """Return the axes at other places; those that have none are left out."""
        return {places[axis]: is_zero for axis, is_zero in self.axes.items() if axis in places}


class _Padding(graphs.GraphWalk[_Padded]):
    def __init__(self, model: onnx.ModelProto, lanes: int) -> None:
        super().__init__(model)
        self._lanes = lanes
        self._weights = self.constants.keys() | {
            node.output[0]
            for node in model.graph.node
            if node.op_type == "DequantizeLinear" and node.input[0] in self.constants
        }
        """Constants, and what quantized models convert from constants."""
        self._handlers = {
            **dict.fromkeys(_POINTWISE, self._pointwise),
            **dict.fromkeys(_CONVERSIONS, self._convert),
            **dict.fromkeys(_VIEWS, self._view),
            **dict.fromkeys(_REDUCTIONS, self._reduce),
            "Concat": self._concatenate,
            "Gather": self._gather,
            "Gemm": self._layer,
            "LayerNormalization": self._normalize,
            "MatMul": self._multiply,
            "Slice": self._slice,
            "Softmax": self._softmax,
            "Transpose": self._transpose,
        }

    def _visit(self, node: onnx.NodeProto) -> None:
        form = self.forms.get(node.input[0]) if node.op_type == "Split" else None
        axis = self._axis(node, "axis", 0) if form else None
        if form is None or axis is None or axis in form.axes:
            super()._visit(node)
            return
        names = self._emit_split(node, form)
        for output, name in zip(node.output, names, strict=True):
            self.forms[output] = replace(form, name=name)
            if output in self._kept:
                self.need(output)

    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        handler = self._handlers.get(node.op_type)
        known = all(name in self.shapes for name in node.input if name)
        return handler(node, shape) if handler and known and node.domain in ("", "ai.onnx") else None

    def operand(self, name: str, shape: tuple[int, ...], form: _Padded) -> str | None:
        """Return an operand whose axes, if they are as long as the output's, have the form's padding."""
        if not name:
            return ""
        own, offset = self.shapes[name], len(shape) - len(self.shapes[name])
        wanted = [axis - offset for axis in form.axes if axis >= offset and own[axis - offset] != 1]
        return self._widened(name, wanted)

    def restore(self, form: _Padded, name: str) -> None:
        axes = sorted(form.axes)
        if not axes:
            self.emit("Identity", [form.name], name)
            return
        ends = [self.shapes[name][axis] for axis in axes]
        self.sliced(form.name, name, starts=[0] * len(axes), ends=ends, axes=axes)

    def _whole(self, length: int) -> int | None:
        return padded(length, self._lanes)

    def _axes(self, name: str) -> Mapping[int, bool]:
        form = self.forms.get(name)
        return form.axes if form else {}

    def _axis(self, node: onnx.NodeProto, key: str, default: int) -> int | None:
        shape = self.shapes.get(node.input[0])
        return None if shape is None else int(graphs.attribute(node, key, default)) % max(len(shape), 1)

    def _lengths(self, shape: Sequence[int], axes: Mapping[int, bool]) -> list[int]:
        """Return the shape with padding."""
        return [self._whole(size) or size if axis in axes else size for axis, size in enumerate(shape)]

    def _widened(self, name: str, wanted: Sequence[int]) -> str:
        """Return the tensor with padding at least along ``wanted``: 0 where it has none yet, and of constants the last
        position's values, by which anything may be divided."""
        shape, form = self.shapes[name], self.forms.get(name)
        missing = [axis for axis in wanted if axis not in self._axes(name)]
        if not missing:
            return form.name if form else name
        after = [(self._whole(shape[axis]) or shape[axis]) - shape[axis] if axis in missing else 0
                 for axis in range(len(shape))]  # fmt: skip
        if name in self.constants:
            return self.constant(name, np.pad(self.array(name), [(0, added) for added in after], mode="edge"))
        made = self.filled(form.name if form else name, [0] * len(shape) + after)
        if form is None:
            # The tensor itself remains, for operators that cannot read the other form.
            self._restored.add(name)
        self.forms[name] = _Padded(name=made, axes={**self._axes(name), **dict.fromkeys(missing, True)})
        return made

    def _convert(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        form = self.forms.get(node.input[0])
        is_whole = all(np.prod(self.shapes[name]) == 1 for name in node.input[1:] if name)
        if form is None or not (is_whole or graphs.attribute(node, "axis", 1) % len(shape) not in form.axes):
            return None
        return self._selected(node, form, form.axes)

    def _pointwise(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        axes: dict[int, bool] = {}
        for name in node.input:
            offset = len(shape) - len(self.shapes.get(name, ()))
            axes |= {axis + offset: False for axis in self._axes(name)}
        if not axes or (node.op_type == "Where" and not self._is_selected_by_constant(node)):
            return None
        form = _Padded(axes=axes)
        operands = [self.operand(name, shape, form) or "" for name in node.input]
        return replace(form, name=self.emit_like(node, operands))

    def _is_selected_by_constant(self, node: onnx.NodeProto) -> bool:
        """Return whether no truth values would have to be padded, which older operator sets cannot."""
        return node.input[0] in self.constants or node.input[0] in self.forms

    def _layer(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        """Pad the rows of a ``Gemm`` with constant weights."""
        bias = self.shapes.get(node.input[2], ()) if len(node.input) > 2 else ()
        is_layer = node.input[1] in self._weights and not graphs.attribute(node, "transA", 0)
        if not is_layer or (len(bias) == 2 and bias[0] != 1):
            return None
        return self._rows(node, shape)

    def _rows(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        """Pad the rows of a product with constant weights, which reads the last axis."""
        data, rank = node.input[0], len(shape)
        axes = self._axes(data)
        if len(self.shapes[data]) != rank or rank < 2 or rank - 1 in axes:
            return None
        wanted = self._bad([(shape[rank - 2], rank - 2)], rows=True)
        if not axes and not wanted:
            return None
        self.count += 1
        name = self.emit_like(node, [self._widened(data, wanted), *node.input[1:]])
        return _Padded(name=name, axes={**dict.fromkeys(axes, False), **dict.fromkeys(wanted, False)})

    def _bad(self, places: Sequence[tuple[int, int]], *, rows: bool) -> list[int]:
        """Return the axes, of ``(length, axis)``, that are worth padding."""
        return [
            axis
            for length, axis in places
            if (has_bad_rows(length) if rows else has_bad_columns(length, self._lanes)) and self._whole(length)
        ]

    def _multiply(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        left, right = node.input
        if right in self._weights:
            return self._rows(node, shape) if len(self.shapes[right]) == 2 else None
        rank = len(shape)
        if left in self._weights or {len(self.shapes[left]), len(self.shapes[right])} != {rank} or rank < 2:
            return None
        ours, theirs, row, column = self._axes(left), self._axes(right), rank - 2, rank - 1
        if any(axis < row for axis in (*ours, *theirs)):
            return None
        # One of the two has zeros where the other's padding would be added to the sums.
        summed = column in ours or row in theirs
        if summed and not (ours.get(column, column not in ours) or theirs.get(row, row not in theirs)):
            return None
        rows = {row} & {*ours} | {*self._bad([(shape[row], row)], rows=True)}
        columns = {column} & {*theirs} | {*self._bad([(shape[column], column)], rows=False)}
        if not rows and not columns and not summed:
            return None
        self.count += 1
        operands = [
            self._widened(left, [*rows, *([column] if summed else [])]),
            self._widened(right, [*columns, *([row] if summed else [])]),
        ]
        return _Padded(name=self.emit_like(node, operands), axes=dict.fromkeys((*rows, *columns), False))

    def _softmax(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        form, last = self.forms.get(node.input[0]), len(shape) - 1
        axis = self._axis(node, "axis", -1 if self._opset >= _SOFTMAX_OF_ONE_AXIS else 1)
        if form is None or (axis != last and self._opset < _SOFTMAX_OF_ONE_AXIS):
            return None
        name = form.name
        if axis in form.axes:
            if axis != last:
                return None
            length, whole = shape[last], self._lengths(shape, form.axes)[last]
            mask = np.where(np.arange(whole) < length, 0, _NEVER).astype(np.float32)
            masked = self.names.new(f"{name}_masked")
            name = self.emit("Add", [name, self.constant(f"{name}_mask", mask)], masked)
        axes = {each: each == axis for each in form.axes}
        return _Padded(name=self.emit_like(node, [name]), axes=axes)

    def _normalize(self, node: onnx.NodeProto, _: tuple[int, ...]) -> _Padded | None:
        form, axis = self.forms.get(node.input[0]), self._axis(node, "axis", -1)
        if form is None or axis is None or any(each >= axis for each in form.axes):
            return None
        name = self.emit_like(node, [form.name, *node.input[1:]])
        return _Padded(name=name, axes=dict.fromkeys(form.axes, False))

    def _reduce(self, node: onnx.NodeProto, _: tuple[int, ...]) -> _Padded | None:
        form, rank = self.forms.get(node.input[0]), len(self.shapes[node.input[0]])
        reduced = self.reduced_axes(node)
        if form is None or not reduced or reduced & {*form.axes}:
            return None
        kept = range(rank) if graphs.attribute(node, "keepdims", 1) else [x for x in range(rank) if x not in reduced]
        places = {axis: place for place, axis in enumerate(kept)}
        name = self.emit_like(node, [form.name, *node.input[1:]])
        return _Padded(name=name, axes=dict.fromkeys(form.moved(places), False))

    def _transpose(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        form = self.forms.get(node.input[0])
        if form is None:
            return None
        order = graphs.attribute(node, "perm") or list(reversed(range(len(shape))))
        places = {axis: place for place, axis in enumerate(order)}
        return _Padded(name=self.emit_like(node, [form.name]), axes=form.moved(places))

    def _view(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        """Keep padding through a reshape, if every padded axis is still one."""
        form, source = self.forms.get(node.input[0]), self.shapes[node.input[0]]
        if form is None or 0 in source:
            return None
        places = {axis: graphs.axis_after(source, shape, axis) for axis in form.axes}
        found = {axis: place for axis, place in places.items() if place is not None}
        if len(found) < len(places):
            return None
        axes = form.moved(found)
        name = self.names.new(f"{node.output[0]}_turned")
        return _Padded(name=self.reshaped(form.name, self._lengths(shape, axes), name), axes=axes)

    def _gather(self, node: onnx.NodeProto, _: tuple[int, ...]) -> _Padded | None:
        """Select along an axis by constant places, none of which counts from the end if the axis is padded."""
        form, axis = self.forms.get(node.input[0]), self._axis(node, "axis", 0)
        if form is None or axis is None or node.input[1] not in self.constants:
            return None
        picked = self.array(node.input[1])
        if axis in form.axes and (picked < 0).any():
            return None
        added = picked.ndim - 1
        rank = len(self.shapes[node.input[0]])
        places = {each: each + added * (each > axis) for each in range(rank) if each != axis}
        return self._selected(node, form, form.moved(places))

    def _slice(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        """Cut along axes without padding."""
        form, source = self.forms.get(node.input[0]), self.shapes[node.input[0]]
        if form is None or any(shape[axis] != source[axis] for axis in form.axes):
            return None
        axes = graphs.attribute(node, "axes")
        if len(node.input) > 3 and node.input[3]:
            axes = self.array(node.input[3]).tolist() if node.input[3] in self.constants else None
        if axes is None or {axis % len(source) for axis in axes} & {*form.axes}:
            return None
        return self._selected(node, form, form.axes)

    def _selected(self, node: onnx.NodeProto, form: _Padded, axes: Mapping[int, bool]) -> _Padded:
        return _Padded(name=self.emit_like(node, [form.name, *node.input[1:]]), axes=axes)

    def _concatenate(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Padded | None:
        axes = {axis: False for name in node.input for axis in self._axes(name)}
        if not axes or graphs.attribute(node, "axis") % len(shape) in axes:
            return None
        return _Padded(name=self.emit_like(node, [self._widened(name, [*axes]) for name in node.input]), axes=axes)

    def _emit_split(self, node: onnx.NodeProto, form: _Padded) -> list[str]:
        names = [self.names.new(f"{name}_turned") for name in node.output]
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[0], copy.output[:] = form.name, names
        self._nodes.append(copy)
        return names
