"""Tables of a job's page: stages, tuning tasks, and the timings of its report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from api.jobs import schemas
from domain.artifacts import OutputError, Report, Timing, Variant
from domain.jobs import EventKind, JobEvent, JobState, Stage
from storage import codec

ROOM = 1.04
"""Scale of a chart relative to its slowest time."""
Progress = Literal["done", "now", "ended", "ahead"]
"""``ended``: the stage in which the job failed or was canceled."""


@dataclass(frozen=True, kw_only=True)
class StageLine:
    stage: Stage
    progress: Progress
    seconds: float | None
    """Seconds of a finished stage, else None."""
    began_at: datetime | None
    share: float
    """Share of the time of all finished stages."""


def stage_lines(job: schemas.JobDetail, events: Sequence[JobEvent]) -> list[StageLine]:
    """Return a line for every stage, in order; ``events`` contain the start of the current one."""
    finished = {time.stage: time for time in job.timeline}
    total = sum(time.seconds for time in job.timeline) or 1.0
    began = {
        event.data["stage"]: event.at
        for event in events
        if event.kind is EventKind.STAGE and event.data.get("status") == "started"
    }
    return [
        StageLine(
            stage=stage,
            progress=_progress(job, stage, stage in finished),
            seconds=finished[stage].seconds if stage in finished else None,
            began_at=finished[stage].started_at if stage in finished else began.get(stage.value),
            share=finished[stage].seconds / total if stage in finished else 0.0,
        )
        for stage in Stage
    ]


def _progress(job: schemas.JobDetail, stage: Stage, is_finished: bool) -> Progress:
    order = list(Stage)
    if is_finished or (job.stage and order.index(stage) < order.index(job.stage)):
        return "done"
    if job.stage is not stage or job.state is JobState.QUEUED:
        return "ahead"
    return "ended" if job.state.is_final else "now"


@dataclass(frozen=True, kw_only=True)
class TaskLine:
    task: schemas.Task
    best: float | None
    """Seconds of the best schedule that the job knew."""
    default: float | None
    """Seconds of the default schedule, where it was measured."""
    before: float | None
    """The task's share in the model's time before tuning; None where another way to compute the operator counts."""
    after: float | None
    """Likewise with the best schedules so far; None of every task while one operator was never measured."""

    @property
    def is_guess(self) -> bool:
        """Whether ``before`` comes from the task's FLOPs."""
        return self.before is not None and self.default is None

    @property
    def gain(self) -> float | None:
        return self.default / self.best if self.default and self.best else None

    @property
    def counts_direct(self) -> bool:
        """Whether GFLOPS count the direct convolution's operations: AutoTVM's templates for Winograd's do."""
        return "winograd" in self.task.name and "." in self.task.name

    @property
    def gflops(self) -> float | None:
        return self.task.flop / self.best / 1e9 if self.best else None


def task_lines(
    tasks: Sequence[schemas.Task],
    alternatives: Mapping[int, int | None],
    *,
    defaults: Mapping[int, float],
    best: Mapping[int, float],
) -> list[TaskLine]:
    """Return lines by share of the model's time, largest first; alternatives of an operator are kept together.

    ``defaults`` and ``best`` map positions to seconds. Positions with the same number in ``alternatives`` are ways to
    compute the same operator, of which only the fastest counts.
    """
    operators = _operators(tasks, alternatives)
    now = {**defaults, **best}
    counted = [_fastest(each, defaults) or _fastest(each, now) or each[0] for each in operators]
    before, after = _before(counted, defaults), _after([_fastest(each, now) for each in operators], now)
    counts = {task.position: one for each, one in zip(operators, counted, strict=True) for task in each}

    def order(task: schemas.Task) -> tuple[float, int, bool, int]:
        first = counts[task.position]
        return -before[first.position], first.position, task is not first, task.position

    return [
        TaskLine(
            task=task,
            best=best.get(task.position),
            default=defaults.get(task.position),
            before=before.get(task.position),
            after=after.get(task.position),
        )
        for task in sorted(tasks, key=order)
    ]


def _operators(tasks: Sequence[schemas.Task], alternatives: Mapping[int, int | None]) -> list[list[schemas.Task]]:
    """Group the tasks that are alternatives of an operator."""
    together: dict[tuple[str, int], list[schemas.Task]] = defaultdict(list)
    for task in tasks:
        number = alternatives.get(task.position)
        together[("task", task.position) if number is None else ("operator", number)].append(task)
    return list(together.values())


def _fastest(operator: Sequence[schemas.Task], seconds: Mapping[int, float]) -> schemas.Task | None:
    known = [task for task in operator if task.position in seconds]
    return min(known, key=lambda task: seconds[task.position], default=None)


def _before(counted: Sequence[schemas.Task], defaults: Mapping[int, float]) -> dict[int, float]:
    """Return shares before tuning; tasks without a measured default are estimated by FLOPs at the others' rate."""
    known = [task for task in counted if task.position in defaults]
    flop = sum(task.weight * max(task.flop, 1.0) for task in known)
    rate = sum(task.weight * defaults[task.position] for task in known) / flop if flop else 1.0
    return _shares(
        {task.position: task.weight * defaults.get(task.position, rate * max(task.flop, 1.0)) for task in counted}
    )


def _after(counted: Sequence[schemas.Task | None], now: Mapping[int, float]) -> dict[int, float]:
    """Return shares after tuning; empty if an operator was not measured, as FLOPs and seconds do not mix."""
    known = [task for task in counted if task is not None]
    if len(known) < len(counted):
        return {}
    return _shares({task.position: task.weight * now[task.position] for task in known})


def _shares(parts: Mapping[int, float]) -> dict[int, float]:
    total = sum(parts.values()) or 1.0
    return {position: part / total for position, part in parts.items()}


@dataclass(frozen=True, kw_only=True)
class ErrorLine:
    """One output of a build that failed the verification."""

    build: str
    output: str
    found: str
    allowed: str
    passed: bool


def error_lines(details: Mapping[str, Any]) -> list[ErrorLine]:
    """Return what was found and allowed, build by build; empty for the details of other failures."""
    builds = details.get("verifications") or details.get("precisions") or {}
    lines = []
    for build, outputs in builds.items():
        known = [codec.try_load(OutputError, output) for output in outputs]
        lines += [_error_line(build, error) for error in known if error is not None]
        if not outputs:
            lines.append(ErrorLine(build=build, output="–", found="did not run", allowed="–", passed=False))
    return lines


def _error_line(build: str, error: OutputError) -> ErrorLine:
    return ErrorLine(build=build, output=error.output, found=error.found, allowed=error.allowed, passed=error.passed)


@dataclass(frozen=True, kw_only=True)
class TimingRow:
    variant: Variant
    name: str
    toolchain: str | None
    timing: Timing
    is_published: bool
    runs_bundle: bool
    """Whether it is another runtime than the published build, and the bundle's."""
    scale: float
    """Seconds at the right edge of the chart, the same for every row."""

    def at(self, seconds: float | None) -> float:
        """Return the position of ``seconds`` in percent of the chart's width."""
        return round(100 * min(1.0, (seconds or 0.0) / self.scale), 3)


def timing_rows(report: Report) -> list[TimingRow]:
    """Return a row for each timed variant: reference, untuned, tuned, other runtimes."""
    timed = [(variant, report.timings[variant]) for variant in Variant if variant in report.timings]
    scale = _scale([timing for _, timing in timed])
    return [
        TimingRow(
            variant=variant,
            name=variant.title(report.compared_with),
            toolchain=report.engines.get(variant),
            timing=timing,
            is_published=variant is report.published,
            runs_bundle=variant is report.fastest is not report.published,
            scale=scale,
        )
        for variant, timing in timed
    ]


def _scale(timings: Sequence[Timing]) -> float:
    """Return a scale for medians and 99th percentiles; a single slow run must not squeeze all bars."""
    return ROOM * max((max(timing.p99, timing.ci_high or 0.0) for timing in timings), default=1.0)
