"""Results of checks."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from domain import errors


class State(enum.StrEnum):
    OK = "ok"
    WARN = "warn"
    """Works, but not for long, or not as well as it could."""
    FAIL = "fail"
    """The service cannot work."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    check: str
    state: State
    code: str
    """Stable code for programs; ``ok`` without a problem."""
    message: str
    hint: str | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check=check, state=State.OK, code="ok", message=message)


def warn(check: str, code: str, message: str, hint: str) -> Finding:
    return Finding(check=check, state=State.WARN, code=code, message=message, hint=hint)


def fail(check: str, code: str, message: str, hint: str) -> Finding:
    return Finding(check=check, state=State.FAIL, code=code, message=message, hint=hint)


def failed(check: str, error: errors.TunesmithError) -> Finding:
    return Finding(check=check, state=State.FAIL, code=error.code, message=error.message, hint=error.hint)
