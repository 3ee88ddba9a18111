"""A job's profile on its page: the sums of its times, the operators that lose most, and a table of all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from api.jobs.pages.job_tables import ROOM
from domain.artifacts import Variant
from domain.profiles import OperatorTime, Profile

_MOST_PLOTTED = 10


class Bar(NamedTuple):
    """Place in a chart, in percent of its width."""

    begin: float
    width: float


@dataclass(frozen=True, kw_only=True)
class TimeLine:
    """A part of the network."""

    name: str
    times: tuple[float | None, ...]
    """Seconds of each side; None on a side without it."""

    @property
    def loss(self) -> float:
        """Seconds that the build takes longer than the reference."""
        ours, theirs = self.times[:2]
        return (ours or 0.0) - (theirs or 0.0)


@dataclass(frozen=True, kw_only=True)
class OperatorLine(TimeLine):
    operator: OperatorTime
    partners: str
    """The kernel, or what has no partner on the other side."""


@dataclass(frozen=True, kw_only=True)
class ProfileView:
    profile: Profile
    sides: tuple[str, ...]
    """Names of the build, of what it is compared with and, if it was profiled, of OpenVINO."""
    parts: tuple[TimeLine, ...]
    """Parts that add up to ``whole``."""
    whole: TimeLine
    lines: tuple[OperatorLine, ...]
    """The largest loss first."""

    @property
    def worst(self) -> tuple[OperatorLine, ...]:
        """The operators for the chart."""
        return tuple(line for line in self.lines[:_MOST_PLOTTED] if line.loss > 0)

    def stacked(self, side: int) -> list[Bar]:
        """Return a bar for each part of a side, end to end; times below zero are noise, and have no width."""
        sides = zip(*(part.times for part in self.parts), strict=True)
        # Of a side with a part below zero, the others add up to more than the whole.
        longest = max(sum(max(0.0, each or 0.0) for each in times) for times in sides)
        scale, bars, at = ROOM * (longest or 1.0), [], 0.0
        for part in self.parts:
            width = max(0.0, part.times[side] or 0.0) / scale
            bars.append(_bar(at, width))
            at += width
        return bars

    def paired(self, seconds: float | None) -> Bar:
        """Return a bar of the chart of the ``worst``."""
        return _bar(0.0, (seconds or 0.0) / _scale(self.worst))


def view(profile: Profile) -> ProfileView:
    """Collect what the page shows."""
    operators = profile.operators
    count = 2 if profile.openvino_seconds is None else 3
    both = [each for each in operators if each.kernels and each.nodes]
    without_nodes = [each for each in operators if each.kernels and not each.nodes]
    without_kernels = [each for each in operators if each.nodes and not each.kernels]
    of_openvino = [each for each in operators if not each.kernels and not each.nodes]
    outside = (profile.outside, profile.reference_outside, profile.openvino_outside)
    whole = (profile.seconds, profile.reference_seconds, profile.openvino_seconds)
    sums = [
        ("operators of both", both),
        (f"kernels without a node: {_count(each.kernels for each in without_nodes)}", without_nodes),
        (f"nodes without a kernel: {_count(each.nodes for each in without_kernels)}", without_kernels),
    ]
    if of_openvino:
        sums.append((f"layers of OpenVINO alone: {_count(each.layers for each in of_openvino)}", of_openvino))
    return ProfileView(
        profile=profile,
        sides=(Variant(profile.variant).title(), profile.compared_with, "OpenVINO")[:count],
        parts=(
            *(_sum(name, found, count) for name, found in sums),
            TimeLine(name="outside of operators", times=outside[:count]),
        ),
        whole=TimeLine(name="whole network", times=whole[:count]),
        lines=tuple(_line(each, count) for each in operators),
    )


def _sum(name: str, operators: Sequence[OperatorTime], count: int) -> TimeLine:
    times = [_times(each, count) for each in operators]
    return TimeLine(name=name, times=tuple(math.fsum(each[side] or 0.0 for each in times) for side in range(count)))


def _line(operator: OperatorTime, sides: int) -> OperatorLine:
    kernels, nodes = operator.kernels, operator.nodes
    count = len(kernels or nodes or operator.layers)
    times = f" ×{count}" if count > 1 and not (kernels and nodes) else ""
    lacking = "no node" if kernels else "no kernel" if nodes else "OpenVINO alone"
    return OperatorLine(
        name=nodes[0] if kernels and nodes else operator.name + times,
        partners=", ".join(kernels) if nodes and kernels else lacking,
        times=_times(operator, sides),
        operator=operator,
    )


def _times(operator: OperatorTime, sides: int) -> tuple[float | None, ...]:
    ours = operator.seconds if operator.kernels else None
    theirs = operator.reference_seconds if operator.nodes else None
    return (ours, theirs, operator.openvino_seconds if operator.layers else None)[:sides]


def _scale(lines: Sequence[TimeLine]) -> float:
    """Return the seconds at the right edge of a chart."""
    return ROOM * max((each for line in lines for each in line.times if each), default=1.0)


def _bar(begin: float, width: float) -> Bar:
    return Bar(round(100 * begin, 3), round(100 * min(width, 1.0), 3))


def _count(names: Iterable[Sequence[str]]) -> int:
    return sum(map(len, names))
