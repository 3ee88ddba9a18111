"""What a stage does while the blob store cannot be used: it waits, as nothing is wrong with the job."""

from __future__ import annotations

import time
from collections.abc import Callable

from domain import errors
from worker.pipeline.work import Outcome, Work

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0


def patiently(work: Work, step: Callable[[Work], Outcome]) -> Outcome:
    """The step's outcome, however often it takes within the time that the settings allow.

    Raises BlobStoreUnavailable after that, and what the lease keeper's ``check`` raises.
    """
    deadline = time.monotonic() + work.settings.blob_retry_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return step(work)
        except errors.BlobStoreUnavailable as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            work.note_once(f"{error.message}; waiting for it")
            _wait(work, min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _wait(work: Work, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        work.keeper.check()
        time.sleep(min(left, work.settings.cancel_poll_seconds))
