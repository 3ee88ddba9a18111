"""Minimal filtering: 3×3 convolutions of tiles by fewer multiplications.

F(m×m, 3×3) computes m×m outputs with (m + 2)² products in place of 9m² (Lavin and Gray, "Fast algorithms for
convolutional neural networks", CVPR 2016): polynomials are multiplied by their values at m + 1 points and at infinity
(Toom and Cook). Points decide how much is lost to rounding (Barabasz et al., arXiv:1803.10986). With 0, ±3/4, ±3/2,
whose squares are exact in binary, F(4×4, 3×3) in float32 errs by a fourth of what the usual 0, ±1, ±2 does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

KERNEL = 3
_NEAR, _FAR = 0.75, 1.5
"""The points of F(4×4, 3×3), with both signs, beside 0 and infinity."""

Values = Callable[[int], Any]
"""The values along one axis, by position."""


@dataclass(frozen=True, kw_only=True)
class Filtering:
    """Along one axis; applied to rows and then to columns it is two-dimensional."""

    outputs: int
    kernel: Any
    """float64 (outputs + 2, 3): weights into their values at the points."""
    enter: Callable[[Values], list[Any]]
    """From outputs + 2 inputs to their values at the points."""
    leave: Callable[[Values], list[Any]]
    """From products at the points to outputs."""

    @property
    def points(self) -> int:
        return self.outputs + KERNEL - 1

    def weights(self, weights: Any, block: int) -> Any:
        """(out, in, 3, 3) into float32 (out / block, points, points, in, block)."""
        values = np.einsum("ea,ub,oiab->oeui", self.kernel, self.kernel, weights.astype("float64"))
        blocked = values.reshape(-1, block, self.points, self.points, weights.shape[1])
        return np.ascontiguousarray(blocked.transpose(0, 2, 3, 4, 1)).astype("float32")


def _enter_2(d: Values) -> list[Any]:
    return [d(0) - d(2), d(1) + d(2), d(2) - d(1), d(1) - d(3)]


def _leave_2(p: Values) -> list[Any]:
    return [p(0) + p(1) + p(2), p(1) - p(2) - p(3)]


def _enter_4(d: Values) -> list[Any]:
    near, far = _NEAR**2, _FAR**2
    return [
        near * far * d(0) - (near + far) * d(2) + d(4),
        (d(4) - far * d(2)) + _NEAR * (d(3) - far * d(1)),
        (d(4) - far * d(2)) - _NEAR * (d(3) - far * d(1)),
        (d(4) - near * d(2)) + _FAR * (d(3) - near * d(1)),
        (d(4) - near * d(2)) - _FAR * (d(3) - near * d(1)),
        near * far * d(1) - (near + far) * d(3) + d(5),
    ]


def _leave_4(p: Values) -> list[Any]:
    near = (p(1) + p(2), p(1) - p(2))
    far = (p(3) + p(4), p(3) - p(4))
    return [
        p(0) + near[0] + far[0],
        _NEAR * near[1] + _FAR * far[1],
        _NEAR**2 * near[0] + _FAR**2 * far[0],
        _NEAR**3 * near[1] + _FAR**3 * far[1] + p(5),
    ]


def _kernel(points: tuple[float, ...]) -> Any:
    """Lagrange's denominators are on the side of the weights, which are transformed once."""
    rows = [
        [point**power / np.prod([point - other for other in points if other != point]) for power in range(KERNEL)]
        for point in points
    ]
    return np.array([*rows, [0.0, 0.0, 1.0]])


FILTERINGS = {
    2: Filtering(
        outputs=2,
        kernel=np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
        enter=_enter_2,
        leave=_leave_2,
    ),
    4: Filtering(outputs=4, kernel=_kernel((0.0, _NEAR, -_NEAR, _FAR, -_FAR)), enter=_enter_4, leave=_leave_4),
}
"""By outputs."""
