"""Every error that the client raises, as one tree.

::

    TunesmithError
    ├── ConfigurationError        a setting is wrong or missing
    │   └── Unauthorized              the server does not accept the token
    ├── NetworkError
    │   ├── ServerUnreachable         nothing answers there
    │   └── ServerError               it answered that it cannot, or nothing that can be understood
    ├── RequestRejected           the server refused what was asked; ``code`` says why
    │   ├── NotFound
    │   └── Conflict
    ├── InvalidInput              refused before anything was sent, or by a local command
    └── JobNotSucceeded
        ├── JobFailed
        └── JobCanceled

``code`` is stable and, where the server answered, the server's own; ``hint`` says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TunesmithError(Exception):
    code = "client_error"
    default_hint: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint or self.default_hint
        self.details = dict(details or {})
        self.status = status
        """The HTTP status, where a server answered."""


class ConfigurationError(TunesmithError):
    code = "configuration_error"


class Unauthorized(ConfigurationError):
    code = "unauthorized"
    default_hint = "Set TUNESMITH_TOKEN to the server's token; it is in server.json of the server's home folder."


class NetworkError(TunesmithError):
    code = "network_error"


class ServerUnreachable(NetworkError):
    code = "server_unreachable"
    default_hint = "Start one with ./run serve, or set TUNESMITH_URL to one that runs elsewhere."


class ServerError(NetworkError):
    code = "server_error"


class RequestRejected(TunesmithError):
    code = "invalid_request"


class NotFound(RequestRejected):
    code = "not_found"


class Conflict(RequestRejected):
    code = "conflict"


class InvalidInput(TunesmithError):
    code = "invalid_input"


def unreadable(path: Path) -> InvalidInput:
    """For a file that was named and is none."""
    if path.is_dir():
        message, hint = f"{path} is a folder, not a file", "Name a file in it."
    else:
        message, hint = f"there is no file {path}", "Check the name; a relative one starts at the current folder."
    return InvalidInput(message, code="unreadable_file", hint=hint)


class JobNotSucceeded(TunesmithError):
    code = "job_failed"


class JobFailed(JobNotSucceeded):
    """``code``, ``hint`` and ``details`` are the failure's own."""


class JobCanceled(JobNotSucceeded):
    code = "job_canceled"


_BY_STATUS: dict[int, type[TunesmithError]] = {401: Unauthorized, 403: Unauthorized, 404: NotFound, 409: Conflict}


def from_answer(status: int, problem: Mapping[str, Any] | None) -> TunesmithError:
    """The error for an answer with this status; ``problem`` is its problem document, if it was one."""
    kind = _BY_STATUS.get(status) or (ServerError if status >= 500 else RequestRejected)
    if problem is None:
        return ServerError(
            f"the server answered {status} without saying why", hint="Is this a Tunesmith server?", status=status
        )
    return kind(
        str(problem.get("detail") or problem.get("title") or f"the server answered {status}"),
        code=problem.get("code"),
        hint=problem.get("hint"),
        details=problem.get("details"),
        status=status,
    )
