"""What every error has."""

from __future__ import annotations

from collections.abc import Mapping
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
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint or self.default_hint
        self.details = dict(details or {})
        self.status, self.retry_after = status, retry_after
        """HTTP's, where a server answered; seconds after which asking again makes sense, where it says so."""
