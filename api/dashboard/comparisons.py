"""A report as rows of one chart: reference, untuned and tuned on the same scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.artifacts import Report, Timing, Variant

ROOM = 1.04
"""Of the scale, beyond the slowest."""


@dataclass(frozen=True, kw_only=True)
class Row:
    variant: Variant
    name: str
    toolchain: str | None
    timing: Timing
    is_published: bool
    scale: float
    """Seconds at the chart's right edge, the same for every row."""

    def at(self, seconds: float | None) -> float:
        """Percent of the chart's width."""
        return round(100 * min(1.0, (seconds or 0.0) / self.scale), 3)


def rows(report: Report) -> list[Row]:
    """In the order in which they are thought of; none where nothing was timed."""
    timed = [(variant, report.timings[variant]) for variant in Variant if variant in report.timings]
    scale = _scale([timing for _, timing in timed])
    return [
        Row(
            variant=variant,
            name=report.compared_with if variant is Variant.REFERENCE else f"TVM, {variant}",
            toolchain=report.engines.get(variant),
            timing=timing,
            is_published=variant is report.published,
            scale=scale,
        )
        for variant, timing in timed
    ]


def _scale(timings: Sequence[Timing]) -> float:
    """A single slow run must not squeeze all the rest: medians and tails count, the very slowest does not."""
    return ROOM * max((max(timing.p99, timing.ci_high or 0.0) for timing in timings), default=1.0)
