"""Every setting is documented, with the description that the code gives it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from api.settings import ApiSettings
from storage.settings import StorageSettings
from tuner.settings import TunerSettings
from worker.settings import WorkerSettings

DOCUMENT = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()


@pytest.mark.parametrize("settings", [StorageSettings, TunerSettings, WorkerSettings, ApiSettings])
def test_every_setting_is_documented(settings: type[BaseSettings]) -> None:
    prefix = settings.model_config["env_prefix"]
    for name, field in settings.model_fields.items():
        variable = f"{prefix}{name}".upper()
        assert field.description, variable
        assert f"| `{variable}` | " in DOCUMENT, f"{variable} is missing in docs/settings.md"
        assert field.description in DOCUMENT, f"docs/settings.md describes {variable} in other words than the code"
