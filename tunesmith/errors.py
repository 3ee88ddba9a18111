"""Every error that the client raises, as one tree.

::

    TunesmithError
    ├── ConfigurationError        a setting is wrong or missing
    │   ├── Unauthorized              the server does not accept the token
    │   └── Forbidden                 a valid token without this permission
    ├── NetworkError              the connection broke
    │   ├── ServerUnreachable         nothing answers there
    │   └── ServerError               it answered that it cannot, or nothing that can be understood
    │       └── Unavailable               a part of the service cannot be reached, or has no time
    ├── RequestRejected           the server refused what was asked
    │   ├── InvalidRequest            sending it again will not help
    │   ├── NotFound                  it is not there, or was deleted
    │   ├── Conflict                  a valid request that conflicts with the current state
    │   └── TooMuch                   more than the caller may have at a time
    ├── InvalidInput              refused before anything was sent, or by a local command
    ├── LockNotKept               what the lock file holds cannot be kept; ``details`` has both sides
    └── JobNotSucceeded
        ├── JobFailed                 ``code``, ``hint`` and ``details`` are the failure's own
        └── JobCanceled

The HTTP status chooses the class of what a server answers; ``code``, ``hint`` and ``details`` are the server's own.
``code`` is stable: branch on it where a class holds more than one case, as in ``error.code == "model_deleted"``.
docs/reference/errors.md lists the codes, those of the client from ``OWN_CODES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

ARTIFACT_NOT_FOUND = "artifact_not_found"
"""The server's code, too, which the client looks for."""

OWN_CODES = {
    "usage": (2, "an option or argument is wrong"),
    "configuration_error": (3, "a setting cannot be right, or this installation lacks a part"),
    "engine_broken": (3, "`engines doctor` found an engine that does not work"),
    "doctor_failed": (3, "`doctor` found something that does not work"),
    "network_error": (4, "the connection broke"),
    "server_unreachable": (4, "nothing answers there: start a server with `./run serve`, or set TUNESMITH_URL"),
    "server_error": (4, "what answered is no Tunesmith server, or what it sent is damaged"),
    "invalid_input": (5, "refused before anything was sent"),
    "invalid_model": (5, "the file to upload is empty"),
    "invalid_budget": (5, "a budget that cannot be read, or two of them"),
    "invalid_bundle": (5, "a bundle for another kind of machine than this one"),
    "invalid_lock": (
        5,
        "a lock file that is none, or is damaged, or lacks the time that `--fail-if-slower` compares with",
    ),
    "invalid_labels": (5, "a file of class names that cannot be read, or does not fit the output"),
    "unknown_output": (5, "`run --dump-outputs` names one that the bundle does not have"),
    "invalid_operator": (5, "a line that describes an operator cannot be read"),
    "unreadable_file": (5, "a file that was named cannot be read"),
    "unwritable_file": (5, "the place to write to cannot be written"),
    "job_not_finished": (5, "the artifact of a job that still runs"),
    ARTIFACT_NOT_FOUND: (5, "the job published nothing, or the model has no such bundle"),
    "artifact_slower": (
        1,
        "`pull --fail-if-slower`: the best bundle is slower than the limit allows, or was never timed",
    ),
    "artifact_missing": (
        1,
        "`pull --lock`: there is no bundle, or none any more for the locked target, device and TVM version",
    ),
    "not_locked": (1, "`pull --frozen`: the lock file has no answer to this question"),
    "job_failed": (1, "the job that was waited for failed, and its failure has no code"),
    "job_canceled": (1, "the job that was waited for was canceled"),
}
"""Codes of errors that no server sent: exit status of the command line, and what they mean."""


class TunesmithError(Exception):
    code = "client_error"
    exit_status: ClassVar[int] = 1
    """Of the command line."""
    default_hint: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint or self.default_hint
        self.details = dict(details or {})
        self.status, self.retry_after = status, retry_after
        """HTTP's, where a server answered; seconds after which asking again makes sense, where it says so."""


class ConfigurationError(TunesmithError):
    code = "configuration_error"
    exit_status = 3


class Unauthorized(ConfigurationError):
    code = "unauthorized"
    default_hint = (
        "Set TUNESMITH_TOKEN, or the file that TUNESMITH_TOKEN_FILE names, to a token of the server; "
        "its own is in server.json of its home folder."
    )


class Forbidden(ConfigurationError):
    code = "forbidden"


class NetworkError(TunesmithError):
    code = "network_error"
    exit_status = 4


class ServerUnreachable(NetworkError):
    code = "server_unreachable"
    default_hint = "Start one with ./run serve, or set TUNESMITH_URL to one that runs elsewhere."


class ServerError(NetworkError):
    code = "server_error"


class Unavailable(ServerError):
    code = "unavailable"


class RequestRejected(TunesmithError):
    code = "request_rejected"
    exit_status = 5


class InvalidRequest(RequestRejected):
    code = "invalid_request"


class NotFound(RequestRejected):
    code = "not_found"


class Conflict(RequestRejected):
    code = "conflict"


class TooMuch(RequestRejected):
    code = "too_much"


class InvalidInput(TunesmithError):
    code = "invalid_input"
    exit_status = 5


class LockNotKept(TunesmithError):
    code = "lock_not_kept"


class JobNotSucceeded(TunesmithError):
    code = "job_not_succeeded"


class JobFailed(JobNotSucceeded):
    code = "job_failed"


class JobCanceled(JobNotSucceeded):
    code = "job_canceled"


def unreadable(path: Path) -> InvalidInput:
    """For a file that was named and is none."""
    if path.is_dir():
        message, hint = f"{path} is a folder, not a file", "Name a file in it."
    else:
        message, hint = f"there is no file {path}", "Check the name; a relative one starts at the current folder."
    return InvalidInput(message, code="unreadable_file", hint=hint)


_BY_STATUS: dict[int, type[TunesmithError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    429: TooMuch,
    503: Unavailable,
}
"""Others are a ServerError from 500 on, and an InvalidRequest below."""


def from_answer(status: int, problem: Mapping[str, Any] | None, *, retry_after: float | None = None) -> TunesmithError:
    """The error for an answer with this status; ``problem`` is its problem document, if it was one."""
    if problem is None:
        hint = "Is this a Tunesmith server?"
        return ServerError(
            f"the server answered {status} without saying why", hint=hint, status=status, retry_after=retry_after
        )
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else InvalidRequest)
    return kind(
        str(problem.get("detail") or problem.get("title") or f"the server answered {status}"),
        code=problem.get("code"),
        hint=problem.get("hint"),
        details=problem.get("details"),
        status=status,
        retry_after=retry_after,
    )


def from_failure(job_id: str, failure: Mapping[str, Any]) -> JobFailed:
    """The error for a failed job, whose failure may have any code."""
    return JobFailed(
        failure.get("message") or f"job {job_id} failed",
        code=failure.get("code"),
        hint=failure.get("hint"),
        details=failure.get("details"),
    )
