"""Replacement of ``Resize`` by products with constant matrices and by choices of constant indices.

Sizes, scales and regions are constants in a prepared model, so each axis has fixed weights: a matrix [size after, size
before]. They are computed as ONNX Runtime computes them, in float32. TVM's own operator stays where both of its
importers use it rightly: it reads neither ``axes``, ``antialias`` nor ``keep_aspect_ratio_policy``, and takes the
quotient of the sizes for the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import TensorProto

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain import emitting
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Emitter, Replacements

OPERATORS = frozenset({"Resize", "Upsample"})
"""``Upsample`` is of old operator sets, whose conversion makes it a ``Resize``."""
_MOST_ELEMENTS = 2**24
"""Of a matrix, 64 MiB."""
_OPTIONAL_OPERANDS = 13
"""First operator set in which regions and scales may be left out."""
_REACH = {"linear": 1, "cubic": 2}
"""Distance in pixels from which on a pixel has no weight."""
_RANKS = (3, 4, 5)
_f = np.float32


@dataclass(frozen=True, kw_only=True)
class Axis:
    axis: int
    before: int
    after: int
    scale: Any
    """float32; not always ``after / before``, since sizes are whole."""
    region: tuple[Any, Any]
    """Start and end of the region for ``tf_crop_and_resize``, as shares of the size."""

    def places(self, mode: str) -> Any:
        """Return the coordinate in the input of each of the ``after`` pixels, float32 [after]."""
        x, last = np.arange(self.after, dtype=_f), _f(self.before - 1)
        half = (x + _f(0.5)) / self.scale - _f(0.5)
        if mode == "asymmetric":
            return x / self.scale
        if mode == "align_corners":
            return x * last / _f(self.after - 1) if self.after > 1 else x
        if mode == "tf_crop_and_resize":
            start, end = self.region
            if self.after == 1:
                return x + _f(0.5) * (start + end) * last
            return start * last + x * (end - start) * last / _f(self.after - 1)
        if mode == "pytorch_half_pixel":
            return half if self.after > 1 else x
        if mode == "half_pixel_symmetric":
            adjustment = _f(self.after) / (self.scale * _f(self.before))
            return _f(self.before) / _f(2) * (_f(1) - adjustment) + half
        return half


_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - _f(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + _f(0.5)),
}


Stays = Callable[[onnx.NodeProto, list[Axis], str, str], bool]
"""Whether TVM's operator stays: given a node, its axes, its ``mode`` and its ``coordinate_transformation_mode``."""


class _Resizing(Replacements):
    methods: ClassVar = {("", "Resize"): "_resize"}

    def __init__(self, emitter: Emitter, stays: Stays) -> None:
        super().__init__(emitter)
        self._stays = stays

    def _resize(self, node: onnx.NodeProto) -> None:
        axes = self._axes(node)
        mode = graphs.attribute(node, "mode", b"nearest").decode()
        places = graphs.attribute(node, "coordinate_transformation_mode", b"half_pixel").decode()
        if self._stays(node, axes, mode, places):
            self._with_sizes(node)
            return
        kind = self._e.kinds.get(node.input[0])
        if mode != "nearest" and kind != TensorProto.FLOAT:
            raise Declined
        made = node.input[0]
        shape = [each.before for each in axes]
        # Reductions first: they leave less for the rest.
        for each in sorted(axes, key=lambda each: each.after / each.before):
            at = each.places(places)
            if mode == "nearest":
                rounded = _ROUNDED[graphs.attribute(node, "nearest_mode", b"round_prefer_floor").decode()](at)
                chosen = np.clip(rounded, 0, each.before - 1).astype(np.int64)
                if not np.array_equal(chosen, np.arange(each.before)):
                    made = self._e.emit("Gather", [made, self._e.constant(chosen, np.int64)], axis=each.axis)
            elif each.before * each.after > _MOST_ELEMENTS:
                raise Declined
            else:
                made = self._product(made, shape, each.axis, _weights(node, each, at, mode))
            shape[each.axis] = each.after
        if places == "tf_crop_and_resize":
            made = self._extrapolated(made, axes, graphs.attribute(node, "extrapolation_value", 0.0), kind)
        self._e.emit("Identity", [made], node.output[0])

    def _axes(self, node: onnx.NodeProto) -> list[Axis]:
        """Return all axes of a node's input. Raises Declined if something about them is not known."""
        given, made = self._e.shapes.get(node.input[0]), self._e.shapes.get(node.output[0])
        if not given or not made or not all(given) or not all(made):
            raise Declined
        _, region, scales, sizes = [*node.input, "", "", ""][:4]
        values = {name: self._e.value(name) for name in (region, scales, sizes) if name}
        if any(value is None for value in values.values()):
            raise Declined
        named = [axis % len(given) for axis in graphs.attribute(node, "axes", range(len(given)))]
        by_axis = np.ones(len(given), _f)
        if scales and values[scales].size:
            by_axis[named] = values[scales]
        else:
            quotients = values[sizes].astype(_f) / np.array(given, _f)[named]
            policy = graphs.attribute(node, "keep_aspect_ratio_policy", b"stretch")
            common = {b"not_larger": quotients.min(), b"not_smaller": quotients.max()}
            by_axis[named] = common.get(policy, quotients)
        regions = np.array([[0] * len(given), [1] * len(given)], _f)
        if region and values[region].size:
            regions[:, named] = values[region].reshape(2, -1)
        return [
            Axis(axis=axis, before=before, after=after, scale=by_axis[axis], region=(start, end))
            for axis, (before, after, start, end) in enumerate(zip(given, made, *regions, strict=True))
        ]

    def _with_sizes(self, node: onnx.NodeProto) -> None:
        """Emit a node without what TVM's importers do not read. Raises Declined if it has none of it."""
        unread = {"axes", "keep_aspect_ratio_policy", "antialias"} & {each.name for each in node.attribute}
        if not unread or self._e.opset < _OPTIONAL_OPERANDS:
            raise Declined
        kept = [each for each in node.attribute if each.name not in unread]
        sizes = self._e.constant(self._e.shapes[node.output[0]], np.int64)
        self._e.copy(onnx.NodeProto(attribute=kept), "Resize", [node.input[0], "", "", sizes], node.output[0])

    def _product(self, name: str, shape: list[int], axis: int, weights: Any) -> str:
        if len(weights) == shape[axis] and np.array_equal(weights, np.eye(len(weights))):
            return name
        after, before = weights.shape
        outer, inner = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
        made = [*shape[:axis], after, *shape[axis + 1 :]]
        if inner == 1:
            rows = self._e.reshape(name, (outer, before))
            return self._e.reshape(self._e.emit("MatMul", [rows, self._e.constant(weights.T)]), made)
        blocks = self._e.reshape(name, (outer, before, inner))
        return self._e.reshape(self._e.emit("MatMul", [self._e.constant(weights), blocks]), made)

    def _extrapolated(self, name: str, axes: list[Axis], value: float, kind: int | None) -> str:
        """Emit a fixed value for pixels outside of the input."""
        inside = np.ones([1] * len(axes), np.bool_)
        for each in axes:
            at = each.places("tf_crop_and_resize")
            shape = [each.after if axis == each.axis else 1 for axis in range(len(axes))]
            inside = inside & ((at >= 0) & (at <= each.before - 1)).reshape(shape)
        if inside.all() or kind is None:
            return name
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        return self._e.emit("Where", [self._e.constant(inside, np.bool_), name, self._e.constant(value, dtype)])


def is_native(node: onnx.NodeProto, axes: list[Axis], mode: str, places: str) -> bool:
    """Return whether TVM's operator computes the same, with the sizes alone."""
    moved = [each for each in axes if each.before != each.after or each.scale != 1]
    if len(axes) not in _RANKS or any(each.axis < len("nc") for each in moved):
        return False
    if graphs.attribute(node, "antialias", 0) and any(each.scale < 1 for each in moved):
        return False
    if mode == "nearest":
        rounded = graphs.attribute(node, "nearest_mode", b"round_prefer_floor")
        is_floor = (places, rounded) in (("asymmetric", b"floor"), ("half_pixel", b"round_prefer_floor"))
        return is_floor and all(each.scale * each.before == each.after and each.scale % 1 == 0 for each in moved)
    return places in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners") and all(
        each.after > 1 and (each.scale == _f(each.after) / _f(each.before) or places == "align_corners")
        for each in moved
    )


def _weights(node: onnx.NodeProto, axis: Axis, places: Any, mode: str) -> Any:
    """Return the weight of each pixel of the input for each of the output, float32 [after, before]."""
    antialias = graphs.attribute(node, "antialias", 0)
    # An antialiasing filter is as much wider as the pixels of the output are.
    narrowing = np.minimum(axis.scale, _f(1)) if antialias else _f(1)
    reach = int(np.ceil(_REACH[mode] / narrowing)) + 1
    pixels = np.floor(places).astype(np.int64)[:, None] + np.arange(-reach, reach + 1)
    distance = np.abs(pixels - places[:, None].astype(np.float64)) * narrowing
    if mode == "linear":
        found = np.maximum(1 - distance, 0)
    else:
        a = graphs.attribute(node, "cubic_coeff_a", -0.75)
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        found = np.select([distance <= 1, distance < _REACH[mode]], [near, far], 0)
    if graphs.attribute(node, "exclude_outside", 0) and (antialias or mode == "cubic"):
        found = np.where((pixels >= 0) & (pixels < axis.before), found, 0)
    found = found / found.sum(axis=1, keepdims=True)
    matrix = np.zeros((axis.after, axis.before))
    # Pixels outside have the value of the nearest one inside.
    np.add.at(matrix, (np.arange(axis.after)[:, None], np.clip(pixels, 0, axis.before - 1)), found)
    return matrix.astype(_f)


def apply(model: onnx.ModelProto) -> int:
    """Replace operators on sizes of images that an importer reads wrongly, and return their number."""
    return replace(model, is_native)


def replace(model: onnx.ModelProto, stays: Stays) -> int:
    """Replace operators on sizes of images, but those of which ``stays`` is true, and return their number."""
    return emitting.replace(model, lambda emitter: _Resizing(emitter, stays))
