"""An engine failed the host."""

from __future__ import annotations

from typing import Any

from domain.errors.base import TunesmithError


class EngineError(TunesmithError):
    code = "engine_error"


class EngineNotInstalled(EngineError):
    code = "engine_not_installed"
    default_hint = "Install it: tunesmith engines install NAME."


class EngineInstallFailed(EngineError):
    code = "engine_install_failed"


class EngineStartFailed(EngineError):
    code = "engine_start_failed"
    default_hint = "Check the environment: tunesmith engines doctor."


class EngineCrashed(EngineError):
    code = "engine_crashed"


class EngineSilent(EngineError):
    code = "engine_silent"


class EngineTimeout(EngineError):
    code = "engine_timeout"


class EngineGarbled(EngineError):
    code = "engine_garbled"


class EngineRequestFailed(EngineError):
    """The engine refused or failed the request; ``engine_code`` is its own stable code."""

    code = "engine_request_failed"

    def __init__(
        self, engine_code: str, message: str, *, hint: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, hint=hint, details=details)
        self.engine_code = engine_code
