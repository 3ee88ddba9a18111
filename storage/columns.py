"""Column types that behave alike on SQLite and PostgreSQL, and the base of all tables."""

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
"""JSON that is displayed, never searched."""

SerialNumber = BigInteger().with_variant(Integer, "sqlite")
"""SQLite assigns row numbers only to a column declared INTEGER."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes, read back in UTC. SQLite stores no time zone, and its text form sorts by time."""

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
    """Return the sha256 in hex, to index texts that may be too long for an index."""
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
