"""The client of a command, imported on demand, and its progress displays."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tunesmith.cli import output
from tunesmith.progress import PlainView, Progress

if TYPE_CHECKING:
    from tunesmith.client import Client
    from tunesmith.events import Event
    from tunesmith.jobs import Job
    from tunesmith.models import Model

_WORTH_SHOWING_BYTES = 8 * 1000 * 1000


def client() -> Client:
    """Connect to the configured server. Raises ServerUnreachable when none is known."""
    from tunesmith.client import Client

    return Client()


def upload_progress(file: Path) -> Callable[[int, int], None] | None:
    """Return a callback that shows the progress of a large upload on a terminal."""
    return _progress("uploading", file, file.stat().st_size) if file.is_file() else None


def download_progress(file: Path, size: int) -> Callable[[int, int], None] | None:
    """Return a callback that shows the progress of a large download on a terminal."""
    return _progress("downloading", file, size)


def warn(model: Model) -> None:
    """Print what the server expects to go wrong with a model. Older servers expect nothing."""
    for warning in model.data.get("warnings") or ():
        output.note(f"warning[{warning['code']}]: {warning['message']}\nhint: {warning['hint']}")


def _progress(verb: str, file: Path, size: int) -> Callable[[int, int], None] | None:
    if not sys.stderr.isatty() or size < _WORTH_SHOWING_BYTES:
        return None
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        share = 100 * done // total
        if share != shown:
            shown = share
            name = file.name[: max(1, output.width() - len(verb) - len("  100 % "))]
            sys.stderr.write(f"\r{verb} {name}  {share} %" + ("\n" if done == total else ""))
            sys.stderr.flush()

    return show


def until_finished(job: Job) -> None:
    """Show progress on standard error until the job has ended in any state. Raises KeyboardInterrupt on Ctrl-C."""
    with continuing(job):
        progress = Progress()
        if _can_redraw():
            from tunesmith.cli.live import LiveView

            with LiveView(progress) as view:
                _follow(job, progress, view.update)
        else:
            _follow(job, progress, PlainView(progress).update)


@contextlib.contextmanager
def continuing(job: Job) -> Iterator[None]:
    """On Ctrl-C, say that the job continues, and how to follow or cancel it."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(f"\njob {job.id} continues in the background")
        output.note(f"to follow it: tunesmith status {job.id} --watch")
        output.note(f"to cancel it: tunesmith cancel {job.id}")
        raise


def _can_redraw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown", "")


def _follow(job: Job, progress: Progress, update: Callable[[Event], None]) -> None:
    for event in job.events():
        progress.apply(event)
        update(event)
