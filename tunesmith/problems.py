"""From what a server said to the error that stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunesmith import errors

_BY_STATUS: dict[int, type[errors.TunesmithError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.NotFound,
    429: errors.TooMuch,
    503: errors.Unavailable,
}
"""Others are a ServerError from 500 on, and an InvalidRequest below."""


def from_answer(
    status: int, problem: Mapping[str, Any] | None, *, retry_after: float | None = None
) -> errors.TunesmithError:
    """The error for an answer with this status; ``problem`` is its problem document, if it was one."""
    if problem is None:
        hint = "Is this a Tunesmith server?"
        return errors.ServerError(
            f"the server answered {status} without saying why", hint=hint, status=status, retry_after=retry_after
        )
    kind = _BY_STATUS.get(status, errors.ServerError if status >= 500 else errors.InvalidRequest)
    return kind(
        str(problem.get("detail") or problem.get("title") or f"the server answered {status}"),
        code=problem.get("code"),
        hint=problem.get("hint"),
        details=problem.get("details"),
        status=status,
        retry_after=retry_after,
    )


def from_failure(job_id: str, failure: Mapping[str, Any]) -> errors.JobFailed:
    """The error for a failed job, whose failure may have any code."""
    return errors.JobFailed(
        failure.get("message") or f"job {job_id} failed",
        code=failure.get("code"),
        hint=failure.get("hint"),
        details=failure.get("details"),
    )
