"""Conversion of ``NonMaxSuppression`` with a kernel of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import buffer_proxy, ir

_AT_ONCE = 64
"""Chosen boxes that a box is compared with before it is asked whether it overlaps one: several vectors of any CPU."""
_VALUES = 5
"""Of a box: its corners and its area."""


def non_max_suppression(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], _: Any, /) -> Any:
    """Convert ``NonMaxSuppression``: ``boxes`` [b, n, 4] and ``scores`` [b, c, n] to int64 [rows, 3].

    TVM's own converter gives the result as many rows as there are boxes and classes, and whatever follows reads beyond
    those that are chosen. Its kernel also keeps only what has scores above 0, drops overlaps that equal the limit, and
    compares a box that is chosen with all boxes after it; here a box is compared with those that are chosen.

    Raises ValueError if a limit is computed.
    """
    boxes, scores = inputs[:2]
    most, overlap, least = (_limit(inputs, place) for place in (2, 3, 4))
    most = min(int(boxes.ty.shape[1]), max(0, int(most or 0)))
    if attributes.get("center_point_box", 0):
        boxes = _corners(boxes)
    given = builder.normalize(boxes), builder.normalize(scores)
    chosen = builder.emit_te(_select, *given, most, np.float32(overlap or 0).item(), least)
    ends = relax.op.concat([chosen[1], relax.const([3], "int64")], axis=0)
    begins, strides = relax.const([0, 0], "int64"), relax.const([1, 1], "int64")
    trimmed = builder.emit(relax.op.dynamic_strided_slice(chosen[0], begins, ends, strides))
    return builder.match_cast(trimmed, relax.TensorType([tirx.Var("selected", "int64"), 3], "int64"))


def _limit(inputs: Sequence[Any], place: int) -> float | None:
    given = inputs[place] if len(inputs) > place else None
    if given is None:
        return None
    if not isinstance(given, tvm.ir.GenericConst):
        raise ValueError("a limit of NonMaxSuppression is computed")
    return float(given.value.numpy().item())


def _corners(boxes: Any) -> Any:
    """Return boxes given by x, y of their centers, width and height by two corners each."""
    parts = relax.op.split(boxes, 4, axis=2)
    x, y, width, height = (parts[place] for place in range(4))
    half = relax.const(0.5, boxes.ty.dtype)
    width, height = width * half, height * half
    return relax.op.concat([y - height, x - width, y + height, x + width], axis=2)


def _select(boxes: Any, scores: Any, most: int, overlap: float, least: float | None) -> Any:
    """Return the places of chosen boxes, int64 [b * c * most, 3], and how many they are, int64 [1]."""
    # One tensor function: the search for tasks fails at one that is a call of TVM's sorting alone.
    order = topi.argsort(scores, axis=2, is_ascend=False, dtype="int32")
    batch, classes, _ = scores.shape
    given = [boxes, scores, order]
    rows = [(max(1, int(batch) * int(classes) * most), 3), (1,)]
    return te.extern(
        rows,
        given,
        lambda ins, outs: _greedy(*ins, *outs, most=most, overlap=overlap, least=least),
        dtype=["int64", "int64"],
        in_buffers=[tirx.decl_buffer(each.shape, each.dtype, f"given{place}") for place, each in enumerate(given)],
        out_buffers=[tirx.decl_buffer(shape, "int64", f"made{place}") for place, shape in enumerate(rows)],
        name="choose",
    )


def _greedy(
    boxes: Any, scores: Any, order: Any, rows: Any, total: Any, *, most: int, overlap: float, least: float | None
) -> Any:
    """Return the statement that chooses boxes of one class after the other, the best first.

    A box is chosen unless it overlaps one that is, by ONNX Runtime's arithmetic: a ratio of float32 that exceeds
    ``overlap``. The corners of chosen boxes lie by themselves, filled up with zeros, which overlap nothing.
    """
    batch, classes, count = map(int, scores.shape)
    room = -(-max(1, most) // _AT_ONCE) * _AT_ONCE
    with IRBuilder() as builder, ir.serial(0, batch) as image:
        chosen = [buffer_proxy(ir.alloc_buffer((room,), "float32")) for _ in range(_VALUES)]
        kept, place, start, hits = (buffer_proxy(ir.alloc_buffer((1,), "int32", scope="local")) for _ in range(4))
        boxes, scores, order, rows, total = map(buffer_proxy, (boxes, scores, order, rows, total))
        with ir.If(image == 0), ir.Then():
            total[0] = tirx.const(0, "int64")
        with ir.serial(0, classes) as group:
            kept[0] = place[0] = tirx.const(0, "int32")
            with ir.While(tirx.all(place[0] < count, kept[0] < most)):
                box = ir.Bind(order[image, group, place[0]])
                place[0] = place[0] + 1
                good = (
                    tirx.const(1, "bool") if least is None else scores[image, group, box] > tirx.const(least, "float32")
                )
                with ir.If(good), ir.Then():
                    own = _extent([boxes[image, box, axis] for axis in range(4)])
                    start[0] = hits[0] = tirx.const(0, "int32")
                    with ir.While(tirx.all(hits[0] == 0, start[0] < kept[0])):
                        with ir.serial(0, _AT_ONCE) as lane:
                            shared = _ratio(own, [values[start[0] + lane] for values in chosen])
                            hits[0] = hits[0] | tirx.Cast("int32", shared > tirx.const(overlap, "float32"))
                        start[0] = start[0] + _AT_ONCE
                    with ir.If(hits[0] == 0), ir.Then():
                        _add(chosen, kept, own)
                        for column, value in enumerate((image, group, box)):
                            rows[total[0], column] = tirx.Cast("int64", value)
                        total[0] = total[0] + tirx.const(1, "int64")
    return builder.get()


def _add(chosen: Sequence[Any], kept: Any, own: Sequence[Any]) -> None:
    """Add a box to those that are chosen; those with which it will be compared at once follow as zeros."""
    with ir.If(kept[0] % _AT_ONCE == 0), ir.Then():
        for values in chosen:
            with ir.serial(0, _AT_ONCE) as lane:
                values[kept[0] + lane] = tirx.const(0.0, "float32")
    for values, value in zip(chosen, own, strict=True):
        values[kept[0]] = value
    kept[0] = kept[0] + 1


def _extent(corners: Sequence[Any]) -> list[Any]:
    """Return the least y and x of a box, its largest, and its area, from any two opposite corners."""
    y, x = ((corners[axis], corners[axis + 2]) for axis in (0, 1))
    least, largest = [tirx.min(*each) for each in (y, x)], [tirx.max(*each) for each in (y, x)]
    bound = [ir.Bind(value) for value in (*least, *largest)]
    return [*bound, ir.Bind((bound[2] - bound[0]) * (bound[3] - bound[1]))]


def _ratio(one: Sequence[Any], other: Sequence[Any]) -> Any:
    """Return the area that two boxes share, over the area that they cover; not a number if they cover none."""
    nothing = tirx.const(0.0, "float32")
    sides = [
        tirx.max(tirx.min(one[axis + 2], other[axis + 2]) - tirx.max(one[axis], other[axis]), nothing)
        for axis in (0, 1)
    ]
    shared = sides[0] * sides[1]
    return shared / (one[4] + other[4] - shared)
