"""Alembic's environment; the connection, in a transaction, comes from ``storage.migrations.running``."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from storage.columns import JsonDocument, SerialNumber, UtcDateTime
from storage.tables import Base


def render_item(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    """Render column types without names of the application, which a revision must not depend on."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and item is SerialNumber:
        return "SERIAL_NUMBER"
    if kind == "type" and item is JsonDocument:
        return "JSON_DOCUMENT"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    render_item=render_item,
)
with context.begin_transaction():
    context.run_migrations()
