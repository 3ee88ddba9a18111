"""Refused by the client itself."""

from __future__ import annotations

from pathlib import Path

from tunesmith.errors.base import TunesmithError


class InvalidInput(TunesmithError):
    code = "invalid_input"


class LockNotKept(TunesmithError):
    code = "lock_not_kept"


class ArtifactSlower(LockNotKept):
    code = "artifact_slower"


class ArtifactMissing(LockNotKept):
    code = "artifact_missing"


class NotLocked(LockNotKept):
    code = "not_locked"


def unreadable(path: Path) -> InvalidInput:
    """For a file that was named and is none."""
    if path.is_dir():
        message, hint = f"{path} is a folder, not a file", "Name a file in it."
    else:
        message, hint = f"there is no file {path}", "Check the name; a relative one starts at the current folder."
    return InvalidInput(message, code="unreadable_file", hint=hint)
