"""Minimal filtering: convolutions of tiles by fewer multiplications.

F(m, r) computes m outputs of a filter of r taps with m + r - 1 products in place of m · r (Lavin and Gray, "Fast
algorithms for convolutional neural networks", CVPR 2016): polynomials are multiplied by their values at m + r - 2
points and at infinity (Toom and Cook). Applied to rows and then to columns it is two-dimensional. Points decide how
much is lost to rounding (Barabasz et al., arXiv:1803.10986). With 0, ±3/4, ±3/2, whose squares are exact in binary,
F(4×4, 3×3) in float32 errs by a fourth of what the usual 0, ±1, ±2 does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

OUTPUTS = (4, 2)
"""Of a tile, along an axis with more than one tap."""
TAPS = (3, 5)
_MAGNITUDES = {0: (), 2: (1.0,), 4: (0.75, 1.5), 6: (0.5, 1.0, 2.0)}
"""Of the finite points beside 0, each taken with both signs, by their number."""

Values = Callable[[int], Any]
"""The values along one axis, by position."""


@dataclass(frozen=True, kw_only=True)
class Filtering:
    """Along one axis."""

    outputs: int
    taps: int

    @property
    def points(self) -> int:
        """Infinity too."""
        return self.outputs + self.taps - 1

    @property
    def _finite(self) -> list[float]:
        return [0.0, *(sign * size for size in _MAGNITUDES[self.points - 2] for sign in (1, -1))]

    def enter(self, d: Values) -> list[Any]:
        """From ``points`` inputs to their values at the points."""
        if self.points == 1:
            return [d(0)]
        values = [_sum(self._factors(0.0), d)]
        for point in self._finite[1::2]:
            factors = self._factors(point)
            even, odd = ({k: v for k, v in factors.items() if k % 2 == rest} for rest in (0, 1))
            # The two signs of a point share the sums of both.
            values += [_sum(even, d) + _sum(odd, d), _sum(even, d) - _sum(odd, d)]
        return [*values, _sum(self._factors(None), d)]

    def leave(self, p: Values) -> list[Any]:
        """From products at the points to outputs."""
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
        """float64 (points, taps): weights into their values at the points."""
        if self.points == 1:
            return np.ones((1, 1))
        finite = self._finite
        # Lagrange's denominators are on the side of the weights, which are transformed once.
        rows = [
            [
                point**power / np.prod([point - other for other in finite if other != point])
                for power in range(self.taps)
            ]
            for point in finite
        ]
        return np.array([*rows, [0.0] * (self.taps - 1) + [1.0]])

    def _factors(self, point: float | None) -> dict[int, float]:
        """Of each input, what is not 0: the polynomial whose roots are the other points; None is infinity."""
        roots = [other for other in self._finite if other != point]
        factors = np.poly(roots)[::-1]
        return {power: float(factor) for power, factor in enumerate(factors) if abs(factor) > 1e-12}


@lru_cache(maxsize=16)
def along(outputs: int, taps: int) -> Filtering:
    """Of one tap there is nothing to save."""
    return Filtering(outputs=outputs if taps > 1 else 1, taps=taps)


def weights(rows: Filtering, columns: Filtering, kernel: Any, block: int) -> Any:
    """(out, in, taps, taps) into float32 (out / block, points, points, in, block)."""
    values = np.einsum("ea,ub,oiab->oeui", rows.kernel, columns.kernel, kernel.astype("float64"))
    blocked = values.reshape(-1, block, rows.points, columns.points, kernel.shape[1])
    return np.ascontiguousarray(blocked.transpose(0, 2, 3, 4, 1)).astype("float32")


def _sum(factors: dict[int, float], values: Values) -> Any:
    total = None
    for position, factor in factors.items():
        term = _scaled(factor, values(position))
        total = term if total is None else total + term
    return total


def _scaled(factor: float, value: Any) -> Any:
    return value if factor == 1 else factor * value
