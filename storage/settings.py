"""Where the service keeps its state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import URL


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _embedded_database(values: dict[str, Any]) -> str:
    return URL.create("sqlite", database=str(values["home"] / "db.sqlite3")).render_as_string()


class StorageSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TUNESMITH_", frozen=True, validate_default=True)

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=Path("~/.local/share/tunesmith"), description="Folder that holds all state and every environment."
    )
    database_url: str = Field(
        default_factory=_embedded_database,
        description="SQLAlchemy URL of the database; by default SQLite, in db.sqlite3 under the home folder.",
    )
    database_timeout: float = Field(
        default=30.0, gt=0, description="Seconds that a transaction waits for its turn before it fails."
    )

    @property
    def blobs(self) -> Path:
        """The folder of the local blob store."""
        return self.home / "blobs"
