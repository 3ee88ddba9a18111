"""Settings of the service's storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr
from sqlalchemy import URL

from process.settings import HomeSettings


def _embedded_database(values: dict[str, Any]) -> str:
    return URL.create("sqlite", database=str(values["home"] / "db.sqlite3")).render_as_string()


class StorageSettings(HomeSettings):
    database_url: str = Field(
        default_factory=_embedded_database,
        description="SQLAlchemy URL of the database.",
    )
    database_timeout: float = Field(
        default=30.0, gt=0, description="Seconds that a transaction waits for a lock before it fails."
    )

    blob_url: str = Field(
        default="",
        description="Store of models and artifacts: file:///folder, or "
        "s3://bucket/prefix?endpoint=https://host&region=name&path_style=1.",
    )
    blob_access_key: SecretStr | None = Field(
        default=None, description="Access key of an S3 store; without one, boto3's own variables and files are used."
    )
    blob_secret_key: SecretStr | None = Field(default=None, description="Secret key of an S3 store.")
    blob_cache_mb: int = Field(
        default=20480,
        ge=0,
        description="Size, in MiB, of the local cache of an S3 store, under the home folder.",
    )

    @property
    def blobs(self) -> Path:
        """Folder of the local blob store."""
        return self.home / "blobs"

    @property
    def blob_cache(self) -> Path:
        """Folder of the cache of an S3 blob store."""
        return self.home / "blob-cache"
