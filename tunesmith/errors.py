"""Exceptions of the client.

::

    TunesmithError
    ├── ConfigurationError        a setting is wrong or missing
    │   ├── Unauthorized              the server does not accept the token
    │   └── Forbidden                 the token lacks the permission
    ├── NetworkError              the connection failed
    │   ├── ServerUnreachable         no server answers at the URL
    │   └── ServerError               the server failed, or its response cannot be understood
    │       └── Unavailable               a part of the service is unreachable or busy
    ├── RequestRejected           the server rejected the request
    │   ├── InvalidRequest            the request is invalid; retrying does not help
    │   ├── NotFound                  the resource does not exist or was deleted
    │   ├── Conflict                  the request conflicts with the current state
    │   └── TooMuch                   a quota or rate limit is exceeded
    ├── InvalidInput              rejected before sending, or by a local command
    ├── LockNotKept               the lock file cannot be satisfied; ``details`` has both bundles
    ├── SlowerThanReference       the bundle is not known to be as fast as ONNX Runtime
    └── JobNotSucceeded
        ├── JobFailed                 ``code``, ``hint`` and ``details`` are those of the failure
        └── JobCanceled

The HTTP status of a response determines the class; ``code``, ``hint`` and ``details`` are those of the server.
``code`` is stable: use it to tell the cases of a class apart, as in ``error.code == "model_deleted"``.
docs/reference/errors.md lists the codes; those of the client are generated from ``OWN_CODES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

ARTIFACT_NOT_FOUND = "artifact_not_found"
"""A code that client and server share."""

OWN_CODES = {
    "usage": (2, "an option or argument is wrong"),
    "configuration_error": (3, "a setting is wrong, or this installation lacks a component"),
    "engine_broken": (3, "`engines doctor` found an engine that does not work"),
    "doctor_failed": (3, "a check of `doctor` failed"),
    "network_error": (4, "the connection broke"),
    "server_unreachable": (4, "no server answers: start one with `./run serve`, or set TUNESMITH_URL"),
    "server_error": (4, "the response is not from a Tunesmith server, or is corrupt"),
    "invalid_input": (5, "rejected before anything was sent"),
    "invalid_model": (5, "the file to upload is empty"),
    "invalid_data_set": (5, "the file of rows to add is empty"),
    "invalid_budget": (5, "a budget that cannot be parsed, or that is given twice"),
    "invalid_bundle": (5, "not a bundle, or one that this machine cannot run"),
    "wrong_digest": (5, "`verify`: a file differs from its digest"),
    "suspicious_library": (5, "`verify`: a library imports or exports what none of a model needs"),
    "wrong_outputs": (5, "`verify --model`: the outputs differ from ONNX Runtime's"),
    "no_reference": (5, "`check`: neither a model nor labels to compare with"),
    "invalid_lock": (
        5,
        "not a lock file, a corrupt one, or one without the time that `--fail-if-slower` compares with",
    ),
    "invalid_labels": (5, "a file of class names that cannot be read, or does not match the output"),
    "memory_limit": (5, "a bundle exceeds `run --memory-mb`"),
    "run_time_limit": (5, "a bundle exceeds `run --max-seconds`"),
    "bundle_crashed": (1, "`run`: a bundle ended the process that ran it; in a checkout `engine_crashed`"),
    "unknown_output": (5, "`run --dump-outputs` names an output that the bundle does not have"),
    "invalid_operator": (5, "an operator specification that cannot be parsed"),
    "unreadable_file": (5, "a file that cannot be read"),
    "unwritable_file": (5, "a file or folder that cannot be written"),
    "job_not_finished": (5, "the job has no artifact yet, as it has not finished"),
    ARTIFACT_NOT_FOUND: (5, "the job published no artifact, or the model has no such bundle"),
    "artifact_slower": (
        1,
        "`pull --fail-if-slower`: the best bundle is slower than the limit allows, or was never timed",
    ),
    "artifact_slower_than_reference": (
        1,
        "`pull --fail-if-slower-than-reference`: the bundle is slower than ONNX Runtime, or was not compared with it",
    ),
    "artifact_missing": (
        1,
        "`pull --lock`: there is no bundle, or no longer one for the locked target, device and TVM version",
    ),
    "not_locked": (1, "`pull --frozen`: the lock file has no entry for this request"),
    "job_failed": (1, "the job failed, and its failure has no code"),
    "job_canceled": (1, "the job was canceled"),
}
"""Error codes of the client: exit status of the command line, and meaning."""


class TunesmithError(Exception):
    code = "client_error"
    exit_status: ClassVar[int] = 1
    """Exit status of the command line."""
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
        """HTTP status of the response, and seconds of its Retry-After header; None without them."""


class ConfigurationError(TunesmithError):
    code = "configuration_error"
    exit_status = 3


class Unauthorized(ConfigurationError):
    code = "unauthorized"
    default_hint = (
        "Set TUNESMITH_TOKEN, or TUNESMITH_TOKEN_FILE to a file with a token of the server; "
        "`serve` writes one to server.json in its home folder."
    )


class Forbidden(ConfigurationError):
    code = "forbidden"


class NetworkError(TunesmithError):
    code = "network_error"
    exit_status = 4


class ServerUnreachable(NetworkError):
    code = "server_unreachable"
    default_hint = "Start a server with ./run serve, or set TUNESMITH_URL to a running one."


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


class SlowerThanReference(TunesmithError):
    code = "artifact_slower_than_reference"


class JobNotSucceeded(TunesmithError):
    code = "job_not_succeeded"


class JobFailed(JobNotSucceeded):
    code = "job_failed"


class JobCanceled(JobNotSucceeded):
    code = "job_canceled"


def unreadable(path: Path) -> InvalidInput:
    """Return the error for a path that is not a file."""
    if path.is_dir():
        message, hint = f"{path} is a folder, not a file", "Name a file in it."
    else:
        message, hint = f"file not found: {path}", "Check the path; a relative path starts at the current folder."
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
"""Any other status is an InvalidRequest below 500, else a ServerError."""


def from_answer(status: int, problem: Mapping[str, Any] | None, *, retry_after: float | None = None) -> TunesmithError:
    """Return the error for a response with this status; ``problem`` is its problem document, if it has one."""
    if problem is None:
        hint = "Is this a Tunesmith server?"
        return ServerError(
            f"the server answered {status} without a reason", hint=hint, status=status, retry_after=retry_after
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
    """Return the error for a failed job, with the code of its failure."""
    return JobFailed(
        failure.get("message") or f"job {job_id} failed",
        code=failure.get("code"),
        hint=failure.get("hint"),
        details=failure.get("details"),
    )
