"""Converters of ONNX operators that TVM's own importer converts to wrong networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx, topi
from tvm.relax.frontend.onnx import onnx_frontend


def install() -> None:
    """Replace TVM's converters by those below; idempotent."""
    onnx_frontend.NonMaxSuppression._impl_v10 = staticmethod(non_max_suppression)


def non_max_suppression(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], _: Any, /) -> Any:
    """Convert ``NonMaxSuppression``: ``boxes`` [b, n, 4] and ``scores`` [b, c, n] to int64 [rows, 3].

    TVM's own converter gives the result as many rows as there are boxes and classes, and whatever follows reads beyond
    those that are chosen. Its kernel also keeps only what has scores above 0, and drops overlaps that equal the limit.

    Raises ValueError if a limit is computed.
    """
    boxes, scores = inputs[:2]
    most, overlap, least = (_limit(inputs, place) for place in (2, 3, 4))
    count = int(boxes.ty.shape[1])
    if attributes.get("center_point_box", 0):
        boxes = _corners(boxes)
    if least is None or least < 0:
        scores, least = _ranks(scores, count, least), 0.0
    if not most or most < 0:
        least = float(np.finfo(np.float32).max)
    chosen = builder.emit_te(
        topi.vision.all_class_non_max_suppression,
        builder.normalize(boxes),
        builder.normalize(scores),
        max(1, min(count, int(most or 0))),
        # The kernel drops what overlaps by at least as much.
        relax.const(np.nextafter(np.float32(overlap or 0), np.float32(np.inf))),
        relax.const(np.float32(least)),
        "onnx",
    )
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


def _ranks(scores: Any, count: int, least: float | None) -> Any:
    """Return the ranks of scores by class, from 1 for the lowest, and 0 for those that are not above ``least``."""
    order = relax.op.argsort(scores, axis=2, descending=True, dtype="int32")
    places = relax.op.argsort(order, axis=2, dtype="int32")
    ranks = relax.op.astype(relax.const(count, "int32") - places, "float32")
    if least is None:
        return ranks
    return relax.op.where(relax.op.greater(scores, relax.const(np.float32(least))), ranks, relax.const(np.float32(0)))
