"""Rearranged channels, such as channel shuffles, and padded images, in the layout of the convolutions around them.

Models spell shuffles out as reshapings and transpositions of planes. ``ConvertLayout`` has no rule for these, nor for
padding, and would transpose the tensor before and after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import buffer_proxy, ir

from tuner.engines.relax import converters
from tuner.engines.relax.graph import calls
from tuner.engines.relax.machines import WORTH_THREADS, Machine

_RESHAPING, _PADDING = "relax.reshape", "relax.nn.pad"
_MOVING = (_RESHAPING, _PADDING, "relax.permute_dims", "relax.strided_slice", "relax.take")
_MODES = {own: mode for mode, own in converters.PAD_MODES.items()}
"""Modes of padding by relax's names, as ONNX and NumPy call them."""
_LAST = 3
"""The axis of the channels in NHWC."""
_LARGEST = 1 << 23
"""Numbers of a tensor whose moves are followed."""
_ELEMENTWISE = (
    "relax.nn.relu", "relax.nn.leakyrelu", "relax.nn.silu", "relax.sigmoid", "relax.add", "relax.subtract",
    "relax.multiply", "relax.maximum", "relax.minimum",
)  # fmt: skip
_MOST_VECTORS = 128
"""Of a pixel, each of which is code of its own."""
_INJECTIVE = 2
"""Value of the attribute ``op_pattern`` of functions that fuse with others of their kind (``kInjective``)."""


def find(module: Any) -> Any:
    """Return an ``IRModule`` in which operators that only rearrange channels are one, ``calls.REARRANGED``.

    So is padding of images.
    """
    _register()
    return relax.transform.DeadCodeElimination()(calls.mutate(module, _Finding))


@cache
def _register() -> None:
    """Register ``calls.REARRANGED``: of two tensors, (n, c, h, w) and (1, k, 1, 1) or likewise of another axis.

    The second one, a constant, has for each channel, row or column of the result which one of the tensor's it is; -1 is
    zeros.
    """
    calls.register(calls.REARRANGED, "places", _result)


def _result(call: Any) -> Any:
    data, order = (each.ty.shape.values for each in call.args)
    shape = [size if int(channels) == 1 else channels for size, channels in zip(data, order, strict=True)]
    return relax.TensorType(shape, call.args[0].ty.dtype)


def _axis(call: Any) -> int:
    """Return the axis that is rearranged."""
    return [int(size) > 1 for size in call.args[1].ty.shape.values].index(True)


def _table(call: Any) -> Any:
    """Return the order along the axis, int32 of shape (k,)."""
    return call.args[1].value.numpy().reshape(-1)


@relax.expr_functor.mutator
class _Finding(relax.PyExprMutator):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self._values = {each.var: each.value for each in calls.bindings(function)}
        self._uses = calls.uses(function)
        self._images = _images(function)

    def visit_call_(self, call: Any) -> Any:
        found = self._rearranged(call)
        if found is None:
            visited = self.visit_expr_post_order(call)
            return self._image(call, visited) if calls.operator(call) == _PADDING else visited
        source, order = found
        if np.array_equal(order, np.arange(int(source.ty.shape.values[1]))):
            return self.visit_expr(source)
        return rearranged(self.visit_expr(source), order, axis=1)

    def _image(self, call: Any, visited: Any) -> Any:
        """Return the padding of an image as rearrangements: ``ConvertLayout`` has no rule for padding."""
        sizes, widths = calls.sizes(call.args[0]), [int(each) for each in call.attrs.pad_width]
        if call.args[0] not in self._images or sizes is None or len(sizes) != _LAST + 1:
            return visited
        if any(widths[:4]) or call.attrs.pad_value:
            return visited
        padded: Any = visited
        for axis, (size, *around) in enumerate(zip(sizes, widths[::2], widths[1::2], strict=True)):
            if any(around):
                source = visited.args[0] if padded is visited else self.builder_.emit(padded)
                padded = rearranged(source, _padded(size, around, str(call.attrs.pad_mode)), axis=axis)
        return padded

    def _rearranged(self, call: Any) -> tuple[Any, Any] | None:
        """Return the earliest tensor of which a call has the channels in another order, and this order."""
        moves: list[Any] = []
        found, value = None, call
        while calls.operator(value) in _MOVING:
            moves.insert(0, value)
            source = value.args[0]
            # Slices and choices alone have rules, or are no more than a copy.
            if any(calls.operator(move) in (_RESHAPING, _PADDING) for move in moves):
                order = _order(source, moves)
                found = found if order is None else (source, order)
            if self._uses[source] > 1:
                break
            value = self._values.get(source)
        return found


def _images(function: Any) -> set[Any]:
    """Return the variables that convolutions compute, or read, through operators that keep their layout or pad."""
    before: set[Any] = set()
    for binding in reversed(calls.bindings(function)):
        name = calls.operator(binding.value)
        is_passed = name == _PADDING or (name and calls.has_layout_rule(name))
        if name == calls.CONVOLUTION or (is_passed and binding.var in before):
            before.add(binding.value.args[0])
    return before | calls.in_layout(function, _PADDING)


def _padded(size: int, around: Sequence[int], mode: str) -> Any:
    """Return where a padded axis has its numbers from, int32 of shape (before + size + after,); -1 is zeros."""
    filling = {"constant_values": -1} if mode == "constant" else {}
    return np.pad(np.arange(size, dtype=np.int32), around, mode=_MODES[mode], **filling)


def _order(source: Any, moves: list[Any]) -> Any | None:
    """Return the channels of ``source`` in the order that moves put them into; None if they move other numbers.

    int32 of shape (channels,); -1 for zeros.
    """
    shape, last = calls.sizes(source), calls.sizes(moves[-1])
    if shape is None or last is None or len(shape) != 4 or len(last) != 4 or math.prod(shape) > _LARGEST:
        return None
    if (shape[0], shape[2:]) != (last[0], last[2:]) or min(shape[1], last[1]) == 1:
        return None
    places = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    for move in moves:
        moved = _move(move, places)
        if moved is None:
            return None
        places = moved
    pixels = shape[2] * shape[3]
    order = np.where(places[:1, :, :1, :1] < 0, -1, places[:1, :, :1, :1] // pixels)
    batch = np.arange(shape[0], dtype=np.int32).reshape(-1, 1, 1, 1)
    pixel = np.arange(pixels, dtype=np.int32).reshape(1, 1, *shape[2:])
    expected = np.where(order < 0, -1, (batch * shape[1] + order) * pixels + pixel)
    return order.astype(np.int32).reshape(-1) if np.array_equal(places, expected) else None


def _move(call: Any, places: Any) -> Any | None:
    """Compute a call of an operator of ``_MOVING``; None if it depends on more than its input."""
    name, attrs = calls.operator(call), call.attrs
    if name == _RESHAPING:
        shape = calls.sizes(call)
        return places.reshape(shape) if shape else None
    if name == "relax.permute_dims":
        return places.transpose(attrs.axes and [int(axis) for axis in attrs.axes])
    if name == _PADDING:
        widths = [int(each) for each in attrs.pad_width]
        is_zero = str(attrs.pad_mode) == "constant" and not attrs.pad_value
        return (
            np.pad(places, list(zip(widths[::2], widths[1::2], strict=True)), constant_values=-1) if is_zero else None
        )
    if name == "relax.take":
        chosen = calls.constant(call.args[1])
        is_inside = chosen is not None and attrs.axis is not None and chosen.min(initial=0) >= 0
        return places.take(chosen, axis=int(attrs.axis), mode="clip") if is_inside else None
    return _slice(call, places)


def _slice(call: Any, places: Any) -> Any | None:
    parts = call.args[1:]
    if not all(isinstance(each, tirx.IntImm) for part in parts for each in part):
        return None
    axes, begins, ends, *strides = [[int(each) for each in part] for part in parts]
    cut = [slice(None)] * places.ndim
    for place, axis in enumerate(axes):
        cut[axis] = slice(begins[place], ends[place], strides[0][place] if strides else 1)
    found = places[tuple(cut)]
    return found if list(found.shape) == calls.sizes(call) else None


def legalizations(machine: Machine | None) -> dict[str, Callable[[Any, Any], Any]]:
    """Return a function for ``LegalizeOps``; ``machine`` is None on a GPU."""

    def computed(builder: Any, call: Any) -> Any:
        if machine and (vectors := _vectors(call, machine)):
            return _shuffled(builder, call, vectors, machine)
        return _gathered(builder, call)

    return {calls.REARRANGED: computed}


@dataclass(frozen=True)
class _Vector:
    """A vector of the result: where it begins, the vectors of the tensor that are loaded, and the places in these."""

    first: int
    width: int
    """Numbers of each vector that is loaded."""
    starts: list[int]
    places: list[int]
    """In the loaded vectors, and zeros behind them, one after the other."""


def _vectors(call: Any, machine: Machine) -> list[_Vector] | None:
    """Return vectors that make up the channels; None if some would have to be gathered."""
    order, lanes = _table(call), machine.lanes
    data = call.args[0].ty
    channels = int(data.shape.values[_LAST])
    if _axis(call) != _LAST or str(data.dtype) != "float32" or min(len(order), channels) < lanes:
        return None
    # The last one overlaps the one before it.
    firsts = [*range(0, len(order) - lanes, lanes), len(order) - lanes]
    found = [_vector(first, order[first : first + lanes].tolist(), channels, lanes) for first in firsts]
    return None if None in found or len(found) > _MOST_VECTORS else [each for each in found if each]


def _vector(first: int, order: Sequence[int], channels: int, lanes: int) -> _Vector | None:
    """Return the vector with the fewest loads; None if what is loaded does not fit into two registers."""
    sources, best = sorted({place for place in order if place >= 0}), None
    for width in (wide for wide in (lanes, lanes // 2, lanes // 4) if wide > 1):
        starts: list[int] = []
        for source in sources:
            if not starts or source >= starts[-1] + width:
                starts.append(min(source, channels - width))
        loaded = len(starts) + (len(sources) < len(set(order)))
        if loaded * width <= 2 * lanes and (best is None or len(starts) < len(best.starts)):
            places = [_place(each, starts, width) for each in order]
            best = _Vector(first, width, starts, places)
    return best


def _place(source: int, starts: Sequence[int], width: int) -> int:
    if source < 0:
        return len(starts) * width
    loaded = next(at for at, start in enumerate(starts) if start <= source < start + width)
    return loaded * width + source - starts[loaded]


def _shuffled(builder: Any, call: Any, vectors: Sequence[_Vector], machine: Machine) -> Any:
    """Call a tensor function that loads vectors, moves their numbers within registers, and stores vectors."""
    *outer, _ = (int(size) for size in call.args[0].ty.shape.values)
    channels, pixels = len(_table(call)), math.prod(outer)
    many = machine.threads > 1 and pixels * channels >= WORTH_THREADS

    def body(given: Any, made: Any) -> Any:
        source, result = buffer_proxy(given), buffer_proxy(made)
        with IRBuilder() as statement, (ir.parallel if many else ir.serial)(0, pixels) as pixel:
            place = [pixel // math.prod(outer[axis + 1 :]) % size for axis, size in enumerate(outer)]
            for each in vectors:
                loaded = [source[(*place, tirx.Ramp(start, 1, each.width))] for start in each.starts]
                zeros = tirx.Broadcast(tirx.const(0, "float32"), each.width)
                moved = tirx.Shuffle([*loaded, zeros], [tirx.const(at, "int32") for at in each.places])
                result[(*place, tirx.Ramp(each.first, 1, len(each.places)))] = moved
        return statement.get()

    def shuffled(data: Any) -> Any:
        return te.extern(
            [(*outer, channels)],
            [data],
            lambda given, made: body(given[0], made[0]),
            dtype="float32",
            in_buffers=[tirx.decl_buffer(data.shape, data.dtype, "given")],
            out_buffers=[tirx.decl_buffer((*outer, channels), "float32", "made")],
            name="shuffled",
        )

    return builder.call_te(shuffled, call.args[0], primfunc_name_hint="shuffled")


def _gathered(builder: Any, call: Any) -> Any:
    """Call a tensor function that reads the number of each channel from a table: LLVM makes gathers of it."""
    axis, order = _axis(call), _table(call)

    def rearranged(data: Any, table: Any, kept: Any = None) -> Any:
        def value(*place: Any) -> Any:
            at = place[axis]
            found = data[(*place[:axis], table[at], *place[axis + 1 :])]
            return tirx.Select(kept[at] != 0, found, tirx.const(0, data.dtype)) if kept is not None else found

        shape = [len(order) if at == axis else size for at, size in enumerate(data.shape)]
        return te.compute(shape, value, name="rearranged")

    # Both sides of a Select are computed. A table with the negative numbers would read outside of the tensor:
    # TVM drops a maximum that the condition of the Select makes superfluous.
    tables = [np.maximum(order, 0), *([(order >= 0).astype("int8")] if (order < 0).any() else [])]
    return builder.call_te(
        rearranged, call.args[0], *map(relax.const, tables), primfunc_name_hint="rearranged",
        primfunc_attrs={"op_pattern": _INJECTIVE},
    )  # fmt: skip


def rearranged(data: Any, order: Any, *, axis: int) -> Any:
    """Return a call that rearranges a tensor of four axes along one; ``order``: int32 of shape (k,), k > 1."""
    _register()
    shape = [-1 if place == axis else 1 for place in range(4)]
    return relax.Call(tvm.ir.Op.get(calls.REARRANGED), [data, relax.const(order.reshape(shape))])


def sink(module: Any) -> Any:
    """Compute what is element-wise before the channels of a convolution are rearranged, which fuses it with that.

    Channels that are then rearranged once more are rearranged once. Convolutions that are not in NHWC stay as they are.
    """
    _register()
    return relax.transform.DeadCodeElimination()(calls.mutate(module, _Sinking))


@relax.expr_functor.mutator
class _Sinking(relax.PyExprMutator):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self._values = {each.var: each.value for each in calls.bindings(function)}
        self._uses = calls.uses(function)
        self._fusing: set[Any] = set()
        """Results of convolutions, and of what is fused with them."""

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if calls.operator(call) == calls.REARRANGED:
            return self._at_once(call, visited)
        if calls.operator(call) not in _ELEMENTWISE or self._uses[call.args[0]] != 1:
            return visited
        before = self._value(visited.args[0])
        if calls.operator(before) != calls.REARRANGED or before.args[0] not in self._fusing or _axis(before) != _LAST:
            return visited
        source, order = before.args[0], _table(before)
        others = _scattered(visited.args[1:], order, int(source.ty.shape.values[-1]))
        if others is None:
            return visited
        made = self.builder_.emit(relax.Call(visited.op, [source, *others], visited.attrs))
        self._fusing.add(made)
        return rearranged(made, order, axis=_LAST)

    def _at_once(self, call: Any, visited: Any) -> Any:
        """Return a call that rearranges what was rearranged before it, too."""
        source, before = visited.args[0], self._value(visited.args[0])
        if self._uses[call.args[0]] != 1:
            return visited
        if calls.operator(self._values.get(call.args[0])) == calls.CONVOLUTION:
            self._fusing.add(source)
        if calls.operator(before) != calls.REARRANGED or _axis(before) != _axis(visited):
            return visited
        order, chosen = _table(before), _table(visited)
        return rearranged(before.args[0], np.where(chosen < 0, chosen, order[chosen]), axis=_axis(visited))

    def _value(self, variable: Any) -> Any:
        return self.lookup_binding(variable) if isinstance(variable, relax.Var) else None


def _scattered(others: Any, order: Any, channels: int) -> list[Any] | None:
    """Return operands for channels that are not rearranged yet; None if they cannot be known."""
    if (order < 0).any() or len(set(order)) < len(order):
        return None
    found = []
    for other in others:
        array = calls.constant(other)
        if array is None or (array.size > 1 and array.size != array.shape[-1]):
            return None
        if array.size > 1:
            wide = np.zeros(channels, array.dtype)
            wide[order] = array.reshape(-1)
            array = wide.reshape(*array.shape[:-1], channels)
        found.append(relax.const(array))
    return found
