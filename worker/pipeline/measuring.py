"""Having the device for oneself while something is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from domain import errors
from domain.jobs import RunnerKind
from tuner.host import devicelock
from worker.pipeline.context import JobContext

_SILENT_SECONDS = 2.0
_SLACK_SECONDS = 120.0
_QUEUE_SECONDS = 3600.0
"""What a round may wait in a tracker's queue besides."""
_WAITING = "waiting for the device: another measurement is using it"


@contextmanager
def alone(context: JobContext, *, canceled: Callable[[], bool] | None = None, say: bool = True) -> Iterator[None]:
    """Waits as long as it takes, and says so once a job unless told not to. Raises Canceled.

    Devices behind a tracker queue there, and other jobs may use others of the same key meanwhile.
    """
    if context.request.runner is not RunnerKind.LOCAL:
        yield
        return
    with ExitStack() as stack:
        canceled = canceled or context.canceled
        try:
            stack.enter_context(devicelock.hold(context.device_lock, timeout=_SILENT_SECONDS, canceled=canceled))
        except errors.DeviceBusy:
            if say:
                context.note_once(_WAITING)
            stack.enter_context(devicelock.hold(context.device_lock, timeout=None, canceled=canceled))
        yield


def longest_round(context: JobContext, trials: int) -> float:
    """Seconds after which an engine that is at work on so many trials counts as stuck."""
    options = context.request.measure
    seconds = trials * (2 * options.timeout + options.cooldown_interval + 10) + _SLACK_SECONDS
    return seconds + (_QUEUE_SECONDS if context.runner else 0.0)
