"""The rows of one database put into another of the same revision, whatever kinds of database they are."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Boolean, Connection, DateTime, MetaData, insert, text
from sqlalchemy.types import TypeEngine


def copy_rows(source: Path, target: Connection) -> int:
    """From a SQLite file into an empty PostgreSQL; returns how many. Both are of one revision."""
    tables = MetaData()
    tables.reflect(target)
    file = sqlite3.connect(source)
    file.row_factory = sqlite3.Row
    copied = 0
    for table in tables.sorted_tables:
        if table.name == "alembic_version":
            continue
        rows = [dict(row) for row in file.execute(f'SELECT * FROM "{table.name}"')]  # noqa: S608 - of the schema
        values = [{name: _value(row[name], table.c[name].type) for name in row} for row in rows]
        if values:
            target.execute(insert(table), values)
            copied += len(values)
        _continue_counting(target, table.name, set(table.c.keys()))
    file.close()
    return copied


def _value(value: Any, kind: TypeEngine[Any]) -> Any:
    if value is None:
        return None
    if isinstance(kind, JSON):
        return json.loads(value)
    if isinstance(kind, DateTime):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return bool(value) if isinstance(kind, Boolean) else value


def _continue_counting(target: Connection, table: str, columns: set[str]) -> None:
    """Numbers that the database gives out follow those that were brought along."""
    if "id" not in columns:
        return
    sequence = target.scalar(text("SELECT pg_get_serial_sequence(:table, 'id')"), {"table": table})
    if sequence:
        target.execute(text(f"SELECT setval('{sequence}', (SELECT coalesce(max(id), 1) FROM {table}))"))  # noqa: S608
