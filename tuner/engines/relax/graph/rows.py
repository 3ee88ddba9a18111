"""Softmax, sums, maxima, means and variances of rows that no vector divides, or of several axes, in rewritten builds.

TVM adds such rows up number by number. Here a softmax gets padded rows, and a sum is one of whole vectors, which
``schedules`` computes in their lanes, and one of what is left.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tvm import te, tirx, topi

from tuner.engines.relax.graph import calls, fast_math
from tuner.engines.relax.machines import MOST_LANES

_DTYPE = "float32"
_FEWEST_LANES = 4
"""Lanes of the narrowest vector that is worth splitting a sum for."""
_OPAQUE = 8
"""TVM's pattern of functions that are not fused."""


def legalizations() -> dict[str, Any]:
    """Return functions for ``LegalizeOps``, by operator."""
    return {name: calls.legalized(name, ours) for name, ours in _OURS.items()}


def _with_softmax(builder: Any, call: Any) -> Any:
    return builder.call_te(_softmax, call.args[0], int(call.attrs.axis))


def _softmax(data: Any, axis: int) -> Any:
    """Return the softmax; rows that no vector divides are padded by minus infinity."""
    *outer, columns = data.shape
    is_odd = isinstance(columns, tirx.IntImm) and int(columns) > MOST_LANES and int(columns) % _FEWEST_LANES > 0
    if axis % len(data.shape) != len(outer) or not is_odd:
        return _shares(data, axis)
    nothing = -tirx.infinity(_DTYPE)
    padded = te.compute(
        (*outer, math.ceil(int(columns) / MOST_LANES) * MOST_LANES),
        lambda *place: tirx.if_then_else(place[-1] < columns, data[place], nothing),
        name="softmax_rows",
    )
    found = _shares(padded, axis)
    return te.compute(data.shape, lambda *place: found[place], name="softmax")


def _shares(data: Any, axis: int) -> Any:
    """Return exponentials as shares of their sum along an axis, with one division for all of them."""
    highest = topi.max(data, axis, keepdims=True)
    grown = te.compute(
        data.shape,
        lambda *place: fast_math.exponential(data[place] - highest[_of_row(place, axis)]),
        name="softmax_exp",
    )
    total = topi.sum(grown, axis, keepdims=True)
    inverse = te.compute(total.shape, lambda *place: tirx.const(1.0, _DTYPE) / total[place], name="softmax_inverse")
    return te.compute(data.shape, lambda *place: grown[place] * inverse[_of_row(place, axis)], name="softmax_shares")


def _of_row(place: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """Return the place of what an axis of extent one has for all along it."""
    axis %= len(place)
    return (*place[:axis], 0, *place[axis + 1 :])


def _reducing(compute: Callable[[Any], Any], name: str) -> Callable[[Any, Any], Any | None]:
    """Return a legalization by ``compute``, which reduces a tensor along its last axis."""

    def reduced(data: Any, rank: int, is_kept: bool) -> Any:
        found = compute(_rows(data, rank))
        if not is_kept:
            return found
        shape = found.shape
        return te.compute((*shape, *[1] * rank), lambda *place: found[place[: len(shape)]], name="kept")

    def legalize(builder: Any, call: Any) -> Any | None:
        rank = _last_axes(call)
        if not rank:
            return None
        # Fused with a normalization behind it, a mean of several axes would be computed for each of its rows.
        attributes = {"op_pattern": _OPAQUE} if rank > 1 else {}
        return builder.call_te(
            reduced, call.args[0], rank, bool(call.attrs.keepdims), primfunc_name_hint=name, primfunc_attrs=attributes
        )

    return legalize


def _last_axes(call: Any) -> int:
    """Return how many axes, the last ones, a call reduces; 0 for others, and if TVM's own function fits them."""
    sizes = calls.sizes(call.args[0])
    if sizes is None:
        return 0
    axes = sorted(int(axis) % len(sizes) for axis in call.attrs.axis or ())
    rank = len(axes)
    count = math.prod(sizes[len(sizes) - rank :])
    is_last = axes == list(range(len(sizes) - rank, len(sizes))) and rank < len(sizes)
    is_odd = rank > 1 or count % _FEWEST_LANES > 0
    return rank if is_last and is_odd and count > MOST_LANES else 0


def _sum(rows: Any) -> Any:
    return _reduced(lambda *place: rows[place], rows.shape, "sum")


def _most(rows: Any) -> Any:
    return _reduced(lambda *place: rows[place], rows.shape, "max", te.max, tirx.max)


def _mean(rows: Any) -> Any:
    return _mean_of(lambda *place: rows[place], rows.shape, "mean")


def _variance(rows: Any) -> Any:
    mean = _mean(rows)

    def squared(*place: Any) -> Any:
        difference = rows[place] - mean[place[:-1]]
        return difference * difference

    return _mean_of(squared, rows.shape, "variance")


def _rows(data: Any, rank: int) -> Any:
    """Return the last axes as one, by a copy, so that every row then stays in the first cache."""
    if rank == 1:
        return data
    outer, inner = data.shape[:-rank], [int(size) for size in data.shape[-rank:]]
    steps = [math.prod(inner[axis + 1 :]) for axis in range(rank)]

    def place_in(*place: Any) -> Any:
        along = [place[-1] // step % size for step, size in zip(steps, inner, strict=True)]
        return data(*place[:-1], *along)

    return te.compute((*outer, math.prod(inner)), place_in, name="rows")


def _mean_of(term: Callable[..., Any], shape: Any, name: str) -> Any:
    """Return the means of ``term(*place, index)`` along the last axis."""
    total, share = _reduced(term, shape, f"{name}_sum"), tirx.const(1 / int(shape[-1]), _DTYPE)
    return te.compute(shape[:-1], lambda *place: total[place] * share, name=name)


def _reduced(
    term: Callable[..., Any], shape: Any, name: str, reduce: Callable[..., Any] = te.sum,
    join: Callable[[Any, Any], Any] = operator.add,
) -> Any:  # fmt: skip
    """Return the sums of ``term(*place, index)`` along the last axis: of whole vectors, and of what is left, joined."""
    outer, count = shape[:-1], int(shape[-1])
    whole = count - count % MOST_LANES

    def part(begin: int, end: int, suffix: str) -> Any:
        along = te.reduce_axis((0, end - begin), name="k")
        return te.compute(outer, lambda *place: reduce(term(*place, begin + along), axis=along), name=name + suffix)

    vectors = part(0, whole, "_vectors")
    if whole == count:
        return vectors
    rest = part(whole, count, "_rest")
    return te.compute(outer, lambda *place: join(vectors[place], rest[place]), name=name)


_OURS: dict[str, Callable[[Any, Any], Any | None]] = {
    "relax.nn.softmax": _with_softmax,
    "relax.sum": _reducing(_sum, "sum"),
    "relax.max": _reducing(_most, "max"),
    "relax.mean": _reducing(_mean, "mean"),
    "relax.variance": _reducing(_variance, "variance"),
}
