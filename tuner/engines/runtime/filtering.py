"""Minimal filtering: tiles of a convolution with fewer multiplications.

F(m, r) computes m outputs of a filter of r taps with m + r - 1 products instead of m · r (Lavin and Gray, "Fast
algorithms for convolutional neural networks", CVPR 2016): polynomials are multiplied by their values at m + r - 2
points and at infinity (Toom and Cook). Applied to rows and then to columns it is two-dimensional. The points determine
the rounding error (Barabasz et al., arXiv:1803.10986). With 0, ±3/4, ±3/2, whose squares are exact in binary, the error
of F(4×4, 3×3) in float32 is a fourth of that with the usual 0, ±1, ±2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

_MAGNITUDES = {0: (), 2: (1.0,), 4: (0.75, 1.5), 6: (0.5, 1.0, 2.0)}
"""Magnitudes of the finite points other than 0, each used with both signs, by their number."""

Values = Callable[[int], Any]
"""Values along one axis, by position."""


@dataclass(frozen=True, kw_only=True)
class Filtering:
    """Minimal filtering along one axis."""

    outputs: int
    taps: int

    @property
    def points(self) -> int:
        """Number of points, including infinity."""
        return self.outputs + self.taps - 1

    @property
    def _finite(self) -> list[float]:
        return [0.0, *(sign * size for size in _MAGNITUDES[self.points - 2] for sign in (1, -1))]

    def enter(self, d: Values) -> list[Any]:
        """Transform ``points`` inputs to their values at the points."""
        if self.points == 1:
            return [d(0)]
        values = [_sum(self._factors(0.0), d)]
        for point in self._finite[1::2]:
            factors = self._factors(point)
            even, odd = ({k: v for k, v in factors.items() if k % 2 == rest} for rest in (0, 1))
            # Both signs of a point share the sums of even and odd terms.
            values += [_sum(even, d) + _sum(odd, d), _sum(even, d) - _sum(odd, d)]
        return [*values, _sum(self._factors(None), d)]

    def leave(self, p: Values) -> list[Any]:
        """Transform products at the points to outputs."""
        if self.points == 1:
            return [p(0)]
        found = []
        for power in range(self.outputs):
            total = p(0) if power == 0 else None
            for place, point in enumerate(self._finite[1::2]):
                plus, minus = p(1 + 2 * place), p(2 + 2 * place)
                pair = _scaled(point**power, plus + minus if power % 2 == 0 else plus - minus)
                total = pair if total is None else total + pair
            found.append(total + p(self.points - 1) if power == self.outputs - 1 else total)
        return found

    @property
    def kernel(self) -> Any:
        """float64 matrix (points, taps) that transforms weights to their values at the points."""
        if self.points == 1:
            return np.ones((1, 1))
        finite = self._finite
        # Lagrange's denominators are applied to the weights, which are transformed only once.
        rows = [
            [
                point**power / np.prod([point - other for other in finite if other != point])
                for power in range(self.taps)
            ]
            for point in finite
        ]
        return np.array([*rows, [0.0] * (self.taps - 1) + [1.0]])

    def _factors(self, point: float | None) -> dict[int, float]:
        """Return the nonzero factors of inputs: the polynomial whose roots are the other points; None is infinity."""
        roots = [other for other in self._finite if other != point]
        factors = np.poly(roots)[::-1]
        return {power: float(factor) for power, factor in enumerate(factors) if abs(factor) > 1e-12}


@lru_cache(maxsize=16)
def along(outputs: int, taps: int) -> Filtering:
    """Return the filtering along an axis; with one tap there is nothing to save."""
    return Filtering(outputs=outputs if taps > 1 else 1, taps=taps)


def multiple(count: int, step: int) -> int:
    """Return the least multiple of ``step`` that is not less than ``count``."""
    return math.ceil(count / step) * step


def pick(select: Callable[[Any, Any, Any], Any], position: Any, values: list[Any]) -> Any:
    """Return ``values[position]`` by TVM's ``Select``; constant once the loop over positions is unrolled."""
    chosen = values[-1]
    for place in reversed(range(len(values) - 1)):
        chosen = select(position == place, values[place], chosen)
    return chosen


def _sum(factors: dict[int, float], values: Values) -> Any:
    total = None
    for position, factor in factors.items():
        term = _scaled(factor, values(position))
        total = term if total is None else total + term
    return total


def _scaled(factor: float, value: Any) -> Any:
    return value if factor == 1 else factor * value
