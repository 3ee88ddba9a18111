"""Sides beside each other: their timings, options, tuning tasks and builds in rows, each against the first side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from api.dashboard.sides import Side
from domain.artifacts import Timing, Variant
from domain.tuning_tasks import TuningTask

MOST_TASKS = 200
_ROOM = 1.04

Verdict = Literal["faster", "slower", "alike", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Against:
    """A time against the first side's."""

    ratio: float
    """How many times as fast."""
    low: float | None = None
    high: float | None = None
    """Of the ratio, as the two intervals of the medians allow at most."""

    @property
    def verdict(self) -> Verdict:
        if self.low is None or self.high is None:
            return "unknown"
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "alike"


@dataclass(frozen=True, kw_only=True)
class TimingCell:
    timing: Timing | None
    against: Against | None = None
    variant: Variant | None = None


@dataclass(frozen=True, kw_only=True)
class TimingRow:
    name: str
    cells: list[TimingCell]


@dataclass(frozen=True, kw_only=True)
class Option:
    name: str
    values: list[str | None]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    title: str
    tasks: list[TuningTask | None]
    ratios: list[float | None]
    """Against the first side's best; None of the first itself and of what has no best."""


@dataclass(frozen=True, kw_only=True)
class BuildRow:
    name: str
    seconds: list[float | None]


def is_same_work(sides: Sequence[Side]) -> bool:
    """Whether times can be held against each other at all: one model, with inputs of one size."""
    return len({(side.model.id, repr(sorted(side.shapes.items()))) for side in sides}) == 1


def timings(sides: Sequence[Side]) -> list[TimingRow]:
    """What was published, then each variant that any side timed; ratios only of the same work."""
    ratios = is_same_work(sides)
    published = [(side.published, side.report.published if side.report else None) for side in sides]
    rows = [
        _timing_row("Published", published, ratios=ratios),
        *(
            _timing_row(variant.capitalize(), [(side.timing(variant), None) for side in sides], ratios=ratios)
            for variant in (Variant.TUNED, Variant.UNTUNED, Variant.REFERENCE)
        ),
    ]
    return [row for row in rows if any(cell.timing for cell in row.cells)]


def scale(sides: Sequence[Side]) -> float:
    """Seconds at the right edge of a chart of all medians."""
    found = [timing for side in sides if side.report for timing in side.report.timings.values()]
    return _ROOM * max((max(timing.median, timing.ci_high or 0.0) for timing in found), default=1.0)


def options(sides: Sequence[Side]) -> list[Option]:
    told = [side.options for side in sides]
    names = list(dict.fromkeys(name for one in told for name in one))
    return [Option(name=name, values=[one.get(name) for one in told]) for name in names]


def tasks(sides: Sequence[Side]) -> list[TaskRow]:
    """Of the same operator in one row, what takes longest in the model first.

    Tuners have workload keys of their own: tasks are matched by what they are, and by order where several are alike.
    """
    columns = [_titled(side.tasks) for side in sides]
    titles = list(dict.fromkeys(key for column in columns for key in column))
    found = [[column.get(key) for column in columns] for key in titles]
    rows = [
        TaskRow(title=title, tasks=row, ratios=[None, *(_task_ratio(row[0], task) for task in row[1:])])
        for (title, _), row in zip(titles, found, strict=True)
    ]
    return sorted(rows, key=lambda row: -max(map(_seconds, row.tasks)))[:MOST_TASKS]


def builds(sides: Sequence[Side]) -> list[BuildRow]:
    """Every build that raced on any side, the fastest first; what was not timed is left out."""
    columns = [
        {each.name: each.seconds for each in side.report.portfolio if each.seconds is not None} if side.report else {}
        for side in sides
    ]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [BuildRow(name=name, seconds=[column.get(name) for column in columns]) for name in names]
    return sorted(rows, key=lambda row: min(seconds for seconds in row.seconds if seconds is not None))


def doubts(sides: Sequence[Side], letters: str) -> list[str]:
    """Why a comparison may say less than it seems to."""
    found = []
    if len({side.model.id for side in sides}) > 1:
        found.append("The models differ: their times are not held against each other.")
    elif not is_same_work(sides):
        found.append("The input shapes differ: their times are not held against each other.")
    if len({side.device_key for side in sides if side.device_key}) > 1:
        found.append("The devices differ: times are those of different machines.")
    for letter, side in zip(letters, sides, strict=False):
        if side.report and side.report.conditions and side.report.conditions.noisy:
            found.append(f"{letter} was measured on a busy machine: its milliseconds are rough.")
    return found


def against(base: Timing, other: Timing) -> Against:
    if None in (base.ci_low, base.ci_high, other.ci_low, other.ci_high):
        return Against(ratio=base.median / other.median)
    assert base.ci_low and base.ci_high and other.ci_low and other.ci_high  # noqa: S101, PT018 - times, none missing
    return Against(ratio=base.median / other.median, low=base.ci_low / other.ci_high, high=base.ci_high / other.ci_low)


def _timing_row(name: str, found: Sequence[tuple[Timing | None, Variant | None]], *, ratios: bool) -> TimingRow:
    first = TimingCell(timing=found[0][0], variant=found[0][1])
    base = first.timing if ratios else None
    rest = [
        TimingCell(timing=timing, variant=variant, against=against(base, timing) if base and timing else None)
        for timing, variant in found[1:]
    ]
    return TimingRow(name=name, cells=[first, *rest])


def _titled(found: Sequence[TuningTask]) -> dict[tuple[str, int], TuningTask]:
    count: defaultdict[str, int] = defaultdict(int)
    titled = {}
    for task in found:
        title = task.extracted.description
        titled[title, count[title]] = task
        count[title] += 1
    return titled


def _task_ratio(base: TuningTask | None, other: TuningTask | None) -> float | None:
    if not (base and other and base.best_latency and other.best_latency):
        return None
    return base.best_latency / other.best_latency


def _seconds(task: TuningTask | None) -> float:
    """In one run of the model."""
    return task.extracted.weight * (task.best_latency or 0.0) if task else 0.0
