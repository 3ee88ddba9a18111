"""From what a server said to the error that stands for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tunesmith import errors


def from_answer(
    status: int, problem: Mapping[str, Any] | None, *, retry_after: float | None = None
) -> errors.TunesmithError:
    """The error for an answer with this status; ``problem`` is its problem document, if it was one."""
    if problem is None:
        hint = "Is this a Tunesmith server?"
        return errors.ServerError(
            f"the server answered {status} without saying why", hint=hint, status=status, retry_after=retry_after
        )
    code = str(problem.get("code"))
    return _BY_CODE.get(code, _by_status(status))(
        str(problem.get("detail") or problem.get("title") or f"the server answered {status}"),
        code=problem.get("code"),
        hint=problem.get("hint"),
        details=problem.get("details"),
        status=status,
        retry_after=retry_after,
    )


def from_failure(job_id: str, failure: Mapping[str, Any]) -> errors.JobFailed:
    """The error for a failed job, whose failure may have any code."""
    kind = _BY_CODE.get(str(failure.get("code")), errors.JobFailed)
    return (kind if issubclass(kind, errors.JobFailed) else errors.JobFailed)(
        failure.get("message") or f"job {job_id} failed",
        code=failure.get("code"),
        hint=failure.get("hint"),
        details=failure.get("details"),
    )


def _by_status(status: int) -> type[errors.TunesmithError]:
    known = {
        401: errors.Unauthorized,
        403: errors.Forbidden,
        404: errors.NotFound,
        409: errors.Conflict,
        429: errors.TooMuch,
    }
    return known.get(status) or (errors.ServerError if status >= 500 else errors.InvalidRequest)


def _descendants(kind: type[errors.TunesmithError]) -> Iterator[type[errors.TunesmithError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


_BY_CODE = {kind.code: kind for kind in _descendants(errors.TunesmithError)}
