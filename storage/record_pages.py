"""Records by filters, in the order in which they were stored: page by page, or all of them without holding them all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.orm import Session

from domain import errors
from domain.records import Record, RecordKey
from domain.targets import split_threads
from storage import records
from storage.database import Database
from storage.tables import RecordRow, digest_of

_ROWS_AT_ONCE = 1000
_TOKEN = re.compile(r"r[0-9]{1,18}")


@dataclass(frozen=True, kw_only=True)
class RecordFilter:
    """What is given must match.

    Indexes answer ``workload_key``, ``job_id``, and ``tuner`` with all three identities; the rest reads every record.
    """

    workload_key: str | None = None
    target: str | None = None
    """A target's identity, or its text alone for any thread count."""
    device_key: str | None = None
    toolchain: str | None = None
    tuner: str | None = None
    job_id: str | None = None
    valid_only: bool = False


def page(
    session: Session, wanted: RecordFilter, *, limit: int, page_token: str | None = None
) -> tuple[list[Record], str | None]:
    """At most ``limit``, oldest first, and the token of the next page, None on the last. Raises InvalidPageToken."""
    rows = session.scalars(_after(wanted, _parse(page_token)).limit(limit + 1)).all()
    token = f"r{rows[limit - 1].id}" if len(rows) > limit else None
    return [records.from_row(row) for row in rows[:limit]], token


def history(
    session: Session, key: RecordKey, *, limit: int, page_token: str | None = None
) -> tuple[list[Record], str | None]:
    """Everybody's trials for a key, failed ones too, as ``page`` tells them."""
    wanted = RecordFilter(
        workload_key=key.workload_key, target=key.target, device_key=key.device_key, toolchain=key.toolchain
    )
    return page(session, wanted, limit=limit, page_token=page_token)


def stream(database: Database, wanted: RecordFilter) -> Iterator[list[Record]]:
    """All of them, some at a time, each some read in a transaction of its own: a slow reader holds up nobody.

    What is stored meanwhile may be among them.
    """
    after = 0
    while True:
        with database.reading() as session:
            rows = session.scalars(_after(wanted, after).limit(_ROWS_AT_ONCE)).all()
            found = [records.from_row(row) for row in rows]
            after = rows[-1].id if rows else after
        if found:
            yield found
        if len(found) < _ROWS_AT_ONCE:
            return


def _after(wanted: RecordFilter, row_id: int) -> Select[Any]:
    conditions: list[ColumnElement[bool]] = [RecordRow.id > row_id]
    if wanted.workload_key is not None:
        conditions.append(RecordRow.workload_digest == digest_of(wanted.workload_key))
    if wanted.target is not None:
        conditions.append(_is_target(wanted.target))
    for name in ("device_key", "toolchain", "tuner", "job_id"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(getattr(RecordRow, name) == value)
    if wanted.valid_only:
        conditions.append(RecordRow.latency.is_not(None))
    return select(RecordRow).where(*conditions).order_by(RecordRow.id)


def _is_target(target: str) -> ColumnElement[bool]:
    text, threads = split_threads(target)
    if threads:
        return RecordRow.target == target
    return or_(RecordRow.target == text, RecordRow.target.startswith(f"{text} -num-cores=", autoescape=True))


def _parse(token: str | None) -> int:
    if token is None:
        return 0
    if not _TOKEN.fullmatch(token):
        raise errors.InvalidPageToken("the page token is not one of ours")
    return int(token[1:])
