"""Limits of a build's errors, derived from the rounding errors of the reference itself.

``perturbing`` runs the reference several times with other kernels and slightly changed operands. What its results then
change by is what a correct build may differ by, within a stated multiple.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MULTIPLE = 16.0
"""Allowed error, in multiples of the reference's own rounding error."""
CAP = 1e-3
"""Limit of the allowed error, relative to the output's root mean square, unless the rounding error itself is larger."""
SURE_MULTIPLE = 4.0
"""Multiple of the rounding error that is allowed even beyond ``CAP``."""
SHARE = 1e-4
"""Allowed root mean square of the error of an output and of each of its parts, relative to that of their values."""
_JUMP = 64.0
"""A change of this many times the typical one is no rounding error but a tie that went the other way."""
_FEW = 0.05
"""Largest share of elements that only ties change."""
_MANY = 8
"""Minimum number of elements that are tied in the reference's runs for further ones to be expected in a build."""
_LEAST_PART = 16
"""Minimum number of elements of a part."""
_MOST_PARTS = 4096
"""Maximum number of parts along one axis."""
_LEAST = 1e-8
"""Absolute root mean square error that is always allowed: relative to a part of zeros, any error is infinite."""


@dataclass(frozen=True, kw_only=True)
class Judgment:
    """The errors of one output with their limits."""

    passed: bool
    error: float
    """Largest absolute error; where the reference's own runs disagree, compared with the nearest of them."""
    limit: float
    """Limit of the element with that error or, if elements exceed their limits, of the one with the largest excess."""
    ties: int
    """Elements that agree only with a run whose operands were changed."""
    rounding: float = 0.0
    """Root mean square of the estimated rounding errors of the reference."""
    rms: float = 0.0
    """Root mean square of the error in the part that comes closest to its limit, relative to that of the output."""
    rms_limit: float = 0.0
    part: str | None = None
    """``index 3 of axis 1``; None for the whole output."""


def judge(
    expected: Any, actual: Any, runs: Sequence[tuple[int, Any]], *, floor: float, quantized: bool = False
) -> Judgment:
    """Compare two float32 outputs of the same shape, by element and by part.

    ``floor`` is the least limit of an element. Elements that are not finite in ``expected`` are left out. ``runs`` has
    units in the last place and outputs. ``quantized`` says that values in between are rounded to integers. A rounding
    error moves few of them, each by a whole step, and others in each run: a build may be off by what the runs whose
    operands moved most change by, anywhere in the output.
    """
    finite = np.isfinite(expected)
    wanted, found = _numbers(expected, finite), _numbers(actual, finite)
    others = [(ulps, np.where(np.isfinite(other), _numbers(other, finite), wanted)) for ulps, other in runs]
    own, typical = _own_rounding(wanted, [other for ulps, other in others if ulps == 1])
    steps = [np.abs(other - wanted) for ulps, other in others if ulps > 1 and quantized]
    size = _rms(wanted)
    least = max([floor, *(float(step.max(initial=0)) for step in steps)])
    limits = np.maximum(least, _limit(own + typical, size))
    errors, ties = _errors(found, wanted, others, limits)
    is_within = bool((errors <= limits).all())
    shown = int(np.argmax(errors if is_within else errors / limits)) if errors.size else None
    worst_part = max(_parts(errors, wanted, own, size, steps), key=lambda part: part.excess)
    return Judgment(
        passed=is_within and worst_part.excess <= 1,
        error=float(errors.max(initial=0)),
        limit=float(limits.flat[shown]) if shown is not None else floor,
        ties=ties,
        rounding=_rms(own),
        rms=worst_part.error / (size or 1.0),
        rms_limit=worst_part.limit / (size or 1.0),
        part=worst_part.name,
    )


def judge_exact(expected: Any, actual: Any, runs: Sequence[tuple[int, Any]]) -> Judgment:
    """Compare two outputs of integers or booleans: each element must be equal to that of one of the runs."""
    wanted, found = _exact(expected), _exact(actual)
    others = [(ulps, _exact(other)) for ulps, other in runs]
    errors, ties = _errors(found, wanted, others, np.zeros(wanted.shape))
    return Judgment(passed=not errors.any(), error=float(errors.max(initial=0)), limit=0.0, ties=ties)


def _numbers(array: Any, finite: Any) -> Any:
    return np.where(finite, array, 0).astype(np.float64)


def _exact(array: Any) -> Any:
    # Extended floats hold all 64-bit integers.
    return array.astype(np.longdouble)


def _rms(array: Any) -> float:
    return math.sqrt(float(np.mean(np.square(array)))) if array.size else 0.0


def _own_rounding(wanted: Any, runs: Sequence[Any]) -> tuple[Any, float]:
    """Return the estimated rounding error of each element, and a typical one of the output.

    An element that changes far more than others is tied, so that its change is no estimate of a rounding error. So are
    all elements that change, if they are few.
    """
    shift = np.zeros(wanted.shape)
    for other in runs:
        np.maximum(shift, np.abs(other - wanted), out=shift)
    size = np.abs(wanted)
    moved = (shift > 0) & (size > 0)
    if np.count_nonzero(moved) <= _FEW * np.count_nonzero(size):
        return np.zeros(wanted.shape), 0.0
    typical, relative = float(np.median(shift[moved])), float(np.median(shift[moved] / size[moved]))
    return np.minimum(shift, _JUMP * (typical + relative * size)) + relative * size, typical


def _limit(own: Any, size: float) -> Any:
    """Return the allowed error for a rounding error ``own``, in an output whose root mean square is ``size``."""
    return np.minimum(MULTIPLE * own, np.maximum(CAP * size, SURE_MULTIPLE * own))


def _errors(found: Any, wanted: Any, runs: Sequence[tuple[int, Any]], limits: Any) -> tuple[Any, int]:
    """Return the distance to the nearest run, 0 for rare ties, and the number of elements that are tied."""
    plain = np.abs(found - wanted)
    errors = _nearest(found, [wanted, *(other for _, other in runs)])
    wrong = errors > limits
    if wrong.any() and _are_rare_ties(errors[wrong], wanted, runs, limits):
        errors[wrong] = 0
    return errors, int(np.count_nonzero((plain > limits) & (errors <= limits)))


def _nearest(found: Any, runs: Sequence[Any]) -> Any:
    errors = np.abs(found - runs[0])
    for other in runs[1:]:
        np.minimum(errors, np.abs(found - other), out=errors)
    return errors


def _are_rare_ties(wrong: Any, wanted: Any, runs: Sequence[tuple[int, Any]], limits: Any) -> bool:
    """Return whether these errors are as few and as small as those of the reference's own runs.

    In a map with many ties, a run whose operands were rounded decides some of them as none of the others does. With few
    ties, all are known from the runs.
    """
    narrow = [wanted, *(other for ulps, other in runs if ulps == 1)]
    changes = [np.abs(other - wanted) for other in narrow]
    moved = np.logical_or.reduce([change > limits for change in changes])
    if np.count_nonzero(moved) < _MANY:
        return False
    values, bounds = [other[moved] for other in narrow], limits[moved]
    alone = [_nearest(values[place], values[:place] + values[place + 1 :]) for place in range(1, len(values))]
    most = max((int(np.count_nonzero(each > bounds)) for each in alone), default=0)
    return len(wrong) <= most and float(wrong.max()) <= max(float(change.max()) for change in changes)


@dataclass(frozen=True, kw_only=True)
class _Part:
    name: str | None
    error: float
    limit: float

    @property
    def excess(self) -> float:
        return self.error / self.limit


def _parts(errors: Any, wanted: Any, own: Any, size: float, steps: Sequence[Any]) -> Iterator[_Part]:
    """Yield the whole output, and of each axis the part whose root mean square error comes closest to its limit.

    The error may be that of any part along the same axis in one of ``steps``.
    """
    least = max((_rms(step) for step in steps), default=0.0)
    limit = max(SHARE * size, float(_limit(_rms(own), size)), least) + _LEAST
    yield _Part(name=None, error=_rms(errors), limit=limit)
    for axis, count in enumerate(errors.shape):
        if not 2 <= count <= _MOST_PARTS or errors.size // count < _LEAST_PART:
            continue
        rest = tuple(place for place in range(errors.ndim) if place != axis)
        each = [np.sqrt(np.mean(np.square(array), axis=rest)) for array in (errors, wanted, own)]
        least = max((math.sqrt(np.mean(np.square(step), axis=rest).max()) for step in steps), default=0.0)
        limits = np.maximum(least, np.maximum(SHARE * each[1], _limit(each[2], size))) + _LEAST
        worst = int(np.argmax(each[0] / limits))
        yield _Part(name=f"index {worst} of axis {axis}", error=float(each[0][worst]), limit=float(limits[worst]))
