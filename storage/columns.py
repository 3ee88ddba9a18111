"""Column types that mean the same on SQLite and PostgreSQL, and what every table starts from."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, MetaData, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

from domain.digests import WorkloadDigest

JsonDocument = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
"""For what is shown, never for what is searched."""

SerialNumber = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in a column declared INTEGER."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes only, read back in UTC; SQLite keeps no zone, and its text form sorts as time does."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


DIGEST = String(64)


def digest_of(text: str) -> str:
    """sha256, hex: what is indexed in place of text that may be too long for an index."""
    return hashlib.sha256(text.encode()).hexdigest()


def workload_digest(workload_key: str) -> WorkloadDigest:
    return WorkloadDigest(digest_of(workload_key))


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it from the class
        datetime: UtcDateTime(),
        dict[str, Any]: JsonDocument,
        list[Any]: JsonDocument,
    }
