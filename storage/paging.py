"""Keyset pagination, newest first: stable while rows are added, and equally fast on all pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import Session

from domain import errors
from storage.tables import ArtifactRow, DataSetRow, JobRow, ModelRow, TokenRow

Row = TypeVar("Row", ModelRow, JobRow, ArtifactRow, TokenRow, DataSetRow)
Value = TypeVar("Value")


def page(
    session: Session,
    query: Select[Row],
    row: type[Row],
    build: Callable[[Row], Value],
    *,
    limit: int,
    page_token: str | None,
) -> tuple[list[Value], str | None]:
    """Return at most ``limit`` values and the token of the next page, None on the last. Raises InvalidPageToken."""
    position: Any = tuple_(row.created_at, row.id)
    if page_token is not None:
        query = query.where(position < tuple_(*parse(page_token)))
    rows = session.scalars(query.order_by(row.created_at.desc(), row.id.desc()).limit(limit + 1)).all()
    more = len(rows) > limit
    return [build(found) for found in rows[:limit]], token_of(
        rows[limit - 1].created_at, rows[limit - 1].id
    ) if more else None


def token_of(at: datetime, identifier: str) -> str:
    return base64.urlsafe_b64encode(f"{at.isoformat()} {identifier}".encode()).decode().rstrip("=")


def parse(token: str) -> tuple[datetime, str]:
    """Parse a token made by ``token_of``. Raises InvalidPageToken."""
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        at, identifier = text.split(" ")
        parsed = datetime.fromisoformat(at)
        if parsed.tzinfo is None or not identifier.isprintable():
            raise ValueError("no time zone, or no id")
        return parsed.astimezone(UTC), identifier
    except (ValueError, OverflowError, binascii.Error) as error:
        raise errors.InvalidPageToken("invalid page token") from error
