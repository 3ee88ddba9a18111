"""Progress as lines, for logs and pipes: few enough to read, often enough to see that it lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.progress import Progress, plan_told

if TYPE_CHECKING:
    from tunesmith.events import Event

_EVERY_SECONDS = 10.0


class PlainView:
    def __init__(self, progress: Progress, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._last = -_EVERY_SECONDS

    def update(self, event: Event) -> None:
        """For events that were applied to the progress before."""
        data = event.data
        if event.kind == "state":
            output.note(f"job {data.get('state')}")
        elif event.kind == "stage" and data.get("status") == "finished":
            told = plan_told(data)
            output.note(f"{data.get('stage')} took {data.get('seconds') or 0:.1f} s" + (f"; {told}" if told else ""))
        elif event.kind == "note":
            output.note(str(data.get("message")))
        elif event.kind == "task" and self._clock() - self._last >= _EVERY_SECONDS:
            self._last = self._clock()
            output.note(self._tuning())

    def _tuning(self) -> str:
        progress = self._progress
        parts = [f"tune  {progress.trials_done}/{progress.trials_planned} trials"]
        eta = progress.eta_seconds()
        if eta is not None:
            parts.append(f"about {output.duration(eta)} left")
        for task in progress.latest_tasks(1):
            best = ""
            if task.best_latency:
                best = f", best {output.latency(task.best_latency)}"
            if task.best_gflops:
                best += f" {task.best_gflops:.1f} GFLOPS"
            parts.append(f"{task.name} {task.trials_done}/{task.trials_planned}{best}")
        return "  |  ".join(parts)


def printing() -> Callable[[Event], None]:
    """What ``Job.wait(progress=True)`` does: lines on standard error."""
    progress = Progress()
    view = PlainView(progress)

    def show(event: Event) -> None:
        progress.apply(event)
        view.update(event)

    return show
