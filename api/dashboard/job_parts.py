"""What a job's page tells of its stages and tuning tasks, reckoned from the job's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from api import schemas
from domain.events import EventKind, JobEvent
from domain.jobs import JobState, Stage

Progress = Literal["done", "now", "ended", "ahead"]
"""``ended``: where a job that failed or was canceled came to its end."""


@dataclass(frozen=True, kw_only=True)
class StageLine:
    stage: Stage
    progress: Progress
    seconds: float | None
    """Of a finished stage; None of one at work or ahead."""
    began_at: datetime | None
    share: float
    """Of the time of all finished stages."""


def stage_lines(job: schemas.JobDetail, events: Sequence[JobEvent]) -> list[StageLine]:
    """One for every stage, in order; ``events`` tell when the one at work began."""
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
    before: float
    """The task's share in the model's time before tuning."""
    after: float
    """Likewise with the best schedules so far."""
    is_guess: bool
    """Whether the shares are those in the model's FLOPs, as no default was measured."""

    @property
    def gain(self) -> float | None:
        return self.default / self.best if self.default and self.best else None

    @property
    def gflops(self) -> float | None:
        return self.task.flop / self.best / 1e9 if self.best else None


def task_lines(
    tasks: Sequence[schemas.Task], defaults: Mapping[int, float], best: Mapping[int, float]
) -> list[TaskLine]:
    """What takes most of the time comes first. The mappings have seconds by position."""
    before = {task.position: _before(task, tasks, defaults) for task in tasks}
    total = sum(before.values()) or 1.0
    after = {task.position: task.weight * best.get(task.position, 0.0) or before[task.position] for task in tasks}
    rest = sum(after.values()) or 1.0
    lines = [
        TaskLine(
            task=task,
            best=best.get(task.position),
            default=defaults.get(task.position),
            before=before[task.position] / total,
            after=after[task.position] / rest,
            is_guess=task.position not in defaults,
        )
        for task in tasks
    ]
    return sorted(lines, key=lambda line: (-line.before, line.task.position))


def _before(task: schemas.Task, tasks: Sequence[schemas.Task], defaults: Mapping[int, float]) -> float:
    """Seconds in one run; of a default that nobody measured as many as its FLOPs take at the others' rate."""
    if task.position in defaults:
        return task.weight * defaults[task.position]
    known = [each for each in tasks if each.position in defaults]
    seconds = sum(each.weight * defaults[each.position] for each in known)
    flop = sum(each.weight * max(each.flop, 1.0) for each in known)
    return task.weight * max(task.flop, 1.0) * (seconds / flop if flop else 1.0)
