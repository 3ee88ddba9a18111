"""What to do about a tuning task of which every trial failed."""

from __future__ import annotations

from collections.abc import Mapping

from domain.records import TrialError

_LOOK = "the trials' messages say more (tunesmith records export, or GET /v1/records?job=JOB)"
_HINTS = {
    TrialError.BUILD_ERROR: f"The compiler refused every candidate: {_LOOK}; another tuner or target may help.",
    TrialError.BUILD_TIMEOUT: "None was built in time: raise timeout, or lower n_parallel on a busy machine.",
    TrialError.RUN_ERROR: f"Every candidate failed while it ran: {_LOOK}.",
    TrialError.RUN_TIMEOUT: "None was measured in time: raise timeout, or lower number, repeat or min_repeat_ms.",
    TrialError.INVALID_SCHEDULE: "No schedule fitted the operator: another tuner or layout may help.",
    TrialError.WRONG_RESULT: "Every candidate computed something else than the operator untuned: use another tuner.",
    TrialError.WRONG_DEVICE: "The devices cannot run what is built for this target: correct the target or the key.",
    TrialError.DEVICE_LOST: "The devices went away: see GET /v1/devices, and retry the job when they are back.",
}
_UNKNOWN = f"See the engine log for the first error (tunesmith logs JOB); {_LOOK}."


def of(failures: Mapping[str, int]) -> str:
    """For the most frequent of the failures, which go by ``TrialError`` value."""
    worst = max(failures, key=lambda kind: failures[kind], default=TrialError.UNKNOWN.value)
    return next((hint for kind, hint in _HINTS.items() if kind == worst), _UNKNOWN)
