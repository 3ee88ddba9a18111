"""Every setting is documented, with the description that the code gives it."""

from __future__ import annotations

import re
from pathlib import Path

import annotated_types
import pytest
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from api.settings import ApiSettings
from storage.settings import StorageSettings
from tuner.host.settings import TunerSettings
from worker.settings import WorkerSettings

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()


@pytest.mark.parametrize("settings", [StorageSettings, TunerSettings, WorkerSettings, ApiSettings])
def test_every_setting_is_documented(settings: type[BaseSettings]) -> None:
    prefix = settings.model_config["env_prefix"]
    for name, field in settings.model_fields.items():
        variable = f"{prefix}{name}".upper()
        assert field.description, variable
        assert f"| `{variable}` | " in DOCUMENT, f"{variable} is missing in docs/reference/settings.md"
        assert field.description in DOCUMENT, (
            f"docs/reference/settings.md describes {variable} in other words than the code"
        )


@pytest.mark.parametrize("settings", [StorageSettings, TunerSettings, WorkerSettings, ApiSettings])
def test_every_bound_is_told(settings: type[BaseSettings]) -> None:
    told = dict(re.findall(r"^\| `TUNESMITH_(\w+)` \| [^|]* \| ([^|]*) \| [^|]* \|$", DOCUMENT, re.MULTILINE))
    wanted = {name.upper(): _bounds(field) for name, field in settings.model_fields.items()}
    names = wanted.keys() & told.keys()
    assert {name: told[name] for name in names} == {name: wanted[name] for name in names}
    assert {name for name in wanted.keys() - names if wanted[name] != "–"} == set()


def _bounds(field: FieldInfo) -> str:
    limits = {type(each): each for each in field.metadata}
    least, beyond = limits.get(annotated_types.Ge), limits.get(annotated_types.Gt)
    most = limits.get(annotated_types.Le)
    assert annotated_types.Lt not in limits
    if most:
        assert least
        return f"{least.ge:g} to {most.le:g}"
    return f"{least.ge:g} or more" if least else f"more than {beyond.gt:g}" if beyond else "–"
