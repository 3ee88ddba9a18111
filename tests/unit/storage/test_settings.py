from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from storage.database import Database, migrate
from storage.settings import StorageSettings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUNESMITH_HOME", "TUNESMITH_DATABASE_URL", "TUNESMITH_DATABASE_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)


def test_everything_lies_under_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home with space, ü and ?"
    monkeypatch.setenv("TUNESMITH_HOME", str(home))
    settings = StorageSettings()
    assert settings.blobs == home / "blobs"
    database = Database(settings.database_url, timeout=settings.database_timeout)
    migrate(database)
    database.close()
    assert (home / "db.sqlite3").is_file()


def test_by_default_it_lies_in_the_users_own_folder() -> None:
    assert StorageSettings().home == Path.home() / ".local/share/tunesmith"


def test_a_database_is_chosen_by_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_DATABASE_URL", "postgresql+psycopg://host/tunesmith")
    assert StorageSettings().database_url == "postgresql+psycopg://host/tunesmith"


def test_settings_do_not_change_and_are_described() -> None:
    settings = StorageSettings()
    with pytest.raises(ValidationError):
        settings.database_timeout = 1  # type: ignore[misc]
    assert all(field.description for field in StorageSettings.model_fields.values())
