"""Progress of a job, accumulated from its events, and its display as lines for logs and pipes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tunesmith.cli import output

if TYPE_CHECKING:
    from tunesmith.events import Event

STAGES = ("import", "baseline", "plan", "tune", "compile", "verify", "benchmark", "publish")
_EVERY_SECONDS = 10.0


def plan_summary(data: Mapping[str, Any]) -> str | None:
    """Summarize the result of the plan stage in a line; None for other data."""
    if "tuner" not in data:
        return None
    covered = data.get("covered", data.get("tasks_covered", 0))
    parts = [f"{data['tuner']}: {data['tasks']} tuning tasks, {covered} need no trials"]
    on_record = data.get("trials_on_record")
    if on_record and covered == data["tasks"]:
        parts.append(f"this budget allows no more than the {on_record} trials on record; a larger one may")
    passed = data.get("passed_over") or data.get("records_passed_over") or {}
    if passed:
        kinds = " and ".join(f"{count} of another {kind}" for kind, count in passed.items())
        parts.append(f"records not usable: {kinds}")
    if data.get("elsewhere"):
        parts.append(f"{len(data['elsewhere'])} being searched by other jobs")
    return "; ".join(parts)


@dataclass(kw_only=True)
class TaskProgress:
    position: int
    name: str
    trials_done: int
    trials_planned: int
    best_latency: float | None
    """Seconds."""
    best_gflops: float | None
    touched: int = 0
    """Counter of changes of all tasks at the last change of this one, to find the latest."""


@dataclass
class Progress:
    state: str = "queued"
    stage: str | None = None
    stage_started: datetime | None = None
    doing: str = ""
    """What the stage has done so far, operator by operator."""
    finished: dict[str, float] = field(default_factory=dict)
    """Seconds by stage."""
    trials_done: int = 0
    trials_planned: int = 0
    share: float = 0.0
    """Finished share of the job, 0 to 1; never falls."""
    seconds_left: float | None = None
    """Seconds left of tuning; None in other stages, and if unknown."""
    tasks: dict[int, TaskProgress] = field(default_factory=dict)
    _touches: int = 0

    def apply(self, event: Event) -> None:
        handler = getattr(self, f"_on_{event.kind}", None)
        if handler:
            handler(event.data, event.at or datetime.now(UTC))

    def latest_tasks(self, most: int) -> list[TaskProgress]:
        """Return the ``most`` tasks that changed last, in extraction order."""
        latest = sorted(self.tasks.values(), key=lambda task: task.touched, reverse=True)[: max(0, most)]
        return sorted(latest, key=lambda task: task.position)

    def _on_state(self, data: dict[str, Any], _at: datetime) -> None:
        self.state = str(data.get("state", self.state))

    def _on_stage(self, data: dict[str, Any], at: datetime) -> None:
        stage = str(data.get("stage"))
        if data.get("status") == "working":
            self.doing = str(data.get("message", ""))
            self.share = max(self.share, float(data.get("share") or 0.0))
            return
        self.doing = ""
        self._advance(data)
        if data.get("status") == "finished":
            self.finished[stage] = float(data.get("seconds") or 0.0)
        else:
            self.stage, self.stage_started = stage, at

    def _on_progress(self, data: dict[str, Any], _at: datetime) -> None:
        self.trials_done = int(data.get("trials_done", self.trials_done))
        self.trials_planned = int(data.get("trials_planned", self.trials_planned))
        self._advance(data)
        for task in data.get("tasks", ()):
            self._take_task(task)

    def _advance(self, data: dict[str, Any]) -> None:
        self.share = max(self.share, float(data.get("share") or 0.0))
        left = data.get("seconds_left")
        self.seconds_left = None if left is None else float(left)

    def _take_task(self, data: dict[str, Any]) -> None:
        self._touches += 1
        position = int(data.get("position", 0))
        self.tasks[position] = TaskProgress(
            position=position,
            name=str(data.get("description") or data.get("name", "")),
            trials_done=int(data.get("trials_done", 0)),
            trials_planned=int(data.get("trials_planned", 0)),
            best_latency=data.get("best_latency"),
            best_gflops=data.get("best_gflops"),
            touched=self._touches,
        )


class PlainView:
    """Progress as lines, one every ten seconds within a stage."""

    def __init__(self, progress: Progress, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._last = -_EVERY_SECONDS

    def update(self, event: Event) -> None:
        """Print a line for an event that was already applied to the progress."""
        data = event.data
        if event.kind == "state":
            output.note(f"job {data.get('state')}")
        elif event.kind == "stage" and data.get("status") == "finished":
            plan = plan_summary(data)
            output.note(f"{data.get('stage')} took {data.get('seconds') or 0:.1f} s" + (f"; {plan}" if plan else ""))
        elif event.kind == "note":
            output.note(str(data.get("message")))
        elif event.kind == "stage" and data.get("status") == "working" and self._is_due():
            output.note(f"{data.get('stage')}  {data.get('message')}")
        elif event.kind == "progress" and self._is_due():
            output.note(self._tuning())

    def _is_due(self) -> bool:
        due = self._clock() - self._last >= _EVERY_SECONDS
        if due:
            self._last = self._clock()
        return due

    def _tuning(self) -> str:
        progress = self._progress
        parts = [f"tune  {progress.trials_done}/{progress.trials_planned} trials"]
        if progress.seconds_left is not None:
            parts.append(f"about {output.duration(progress.seconds_left)} of tuning left")
        for task in progress.latest_tasks(1):
            best = ""
            if task.best_latency:
                best = f", best {output.latency(task.best_latency)}"
            if task.best_gflops:
                best += f" {task.best_gflops:.1f} GFLOPS"
            parts.append(f"{task.name} {task.trials_done}/{task.trials_planned}{best}")
        return "  |  ".join(parts)


def printing() -> Callable[[Event], None]:
    """Return a callback that prints progress to standard error, for ``Job.wait(progress=True)``."""
    progress = Progress()
    view = PlainView(progress)

    def show(event: Event) -> None:
        progress.apply(event)
        view.update(event)

    return show
