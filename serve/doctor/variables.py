"""Check of the settings: they can be read, and every variable is known."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from process import settings
from process.settings import PREFIX, Settings, variable
from serve.doctor import findings
from serve.doctor.findings import Finding
from storage.settings import StorageSettings
from tuner.host.settings import TunerSettings
from worker.settings import WorkerSettings

CHECK = "settings"
_NOT_SERVICE_VARIABLES = frozenset(
    f"{PREFIX}{name}"
    for name in ("URL", "TOKEN", "WEBHOOK_SECRET", "APP_PYTHON", "CHROMIUM", "ENGINE_PLUGINS", "ENGINE_NOTE")
)
"""Variables of the client, the scripts and the tests."""


@dataclass(frozen=True, kw_only=True)
class AllSettings:
    storage: StorageSettings
    worker: WorkerSettings
    tuner: TunerSettings


def read() -> AllSettings:
    """Read all settings. Raises ConfigurationError."""
    return AllSettings(storage=StorageSettings(), worker=WorkerSettings(), tuner=TunerSettings())


def check(api_fields: list[str], environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check for unknown variables; ``api_fields`` are the names of the API's settings, which only the API may
    import."""
    kinds: list[type[Settings]] = [StorageSettings, WorkerSettings, TunerSettings]
    fields = {name for kind in kinds for name in kind.model_fields} | set(api_fields)
    known = {variable(name) for name in fields} | _NOT_SERVICE_VARIABLES
    given = [name for name in environment if name.startswith(PREFIX)]
    unknown = sorted(name for name in given if name.removesuffix(settings.SUFFIX) not in known)
    found = [_unknown(name, known) for name in unknown]
    return found or [findings.ok(CHECK, _all_known(len(given)))]


def _all_known(count: int) -> str:
    if count < 2:
        return "one variable is set and known" if count else "no variables are set"
    return f"{count} variables are set, all known"


def _unknown(name: str, known: set[str]) -> Finding:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return findings.warn(
        CHECK, "setting_unknown", f"{name} is not a setting", f"{hint}docs/reference/settings.md lists all settings."
    )
