"""A curve as the points of an SVG line and as a short table: what a page shows where no script draws."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from storage.convergence import Point, thinned

WIDTH, HEIGHT = 1000, 240
_TABLE_ROWS = 9


@dataclass(frozen=True)
class Plot:
    points: Sequence[Point]

    @property
    def line(self) -> str:
        """Steps in a box of WIDTH by HEIGHT, for ``<polyline points>``; empty with fewer than two points."""
        if len(self.points) < 2:
            return ""
        last = max(point[0] for point in self.points) or 1
        values = [point[2] for point in self.points]
        low, span = min(values), (max(values) - min(values)) or 1.0
        placed = [(WIDTH * point[0] / last, HEIGHT * (1 - (point[2] - low) / span)) for point in self.points]
        steps = [f"{placed[0][0]:.1f},{placed[0][1]:.1f}"]
        for (_, before), (x, y) in itertools.pairwise(placed):
            steps += [f"{x:.1f},{before:.1f}", f"{x:.1f},{y:.1f}"]
        return " ".join(steps)

    @property
    def rows(self) -> list[Point]:
        return thinned(list(self.points), _TABLE_ROWS)
