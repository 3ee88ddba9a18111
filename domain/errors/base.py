"""What every error has."""

from __future__ import annotations

from typing import Any, ClassVar


class TunesmithError(Exception):
    """``details`` holds JSON-able facts for machines, such as the operators or the near matches."""

    code: ClassVar[str] = "internal_error"
    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str, *, hint: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.details = details or {}
