"""Waiting for a job in front of a person: Ctrl-C ends the waiting, never the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.progress import PlainView, Progress

if TYPE_CHECKING:
    from tunesmith.events import Event
    from tunesmith.jobs import Job


def until_finished(job: Job) -> None:
    """Show progress on standard error until the job has ended, however that is. KeyboardInterrupt passes through."""
    progress = Progress(budget_seconds=job.data["budget"]["seconds"])
    try:
        if _can_redraw():
            from tunesmith.cli.live import LiveView

            with LiveView(progress) as view:
                _follow(job, progress, view.update)
        else:
            _follow(job, progress, PlainView(progress).update)
    except KeyboardInterrupt:
        output.note(f"\njob {job.id} goes on without you")
        output.note(f"look again: tunesmith status {job.id} --watch")
        output.note(f"stop it:    tunesmith cancel {job.id}")
        raise


def _can_redraw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown", "")


def _follow(job: Job, progress: Progress, update: Callable[[Event], None]) -> None:
    for event in job.events():
        progress.apply(event)
        update(event)
