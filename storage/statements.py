"""Single-statement operations with different SQL for SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import BigInteger, CursorResult, Delete, String, Table, Update, func, literal, select
from sqlalchemy import cast as cast_to
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from domain.digests import WorkloadDigest
from storage.tables import Base, workload_digest

_KEYS_AT_ONCE = 500
_ROWS_AT_ONCE = 500
"""Both limit the number of values in a statement, SQLite to 32766."""


def changed(session: Session, statement: Update | Delete) -> int:
    """Execute a statement and return the number of changed rows; compare-and-set succeeds with 1."""
    result = session.execute(statement, execution_options={"synchronize_session": False})
    return cast("CursorResult[Any]", result).rowcount


def add_missing(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]], *, key: Sequence[str]) -> int:
    """Insert the rows whose ``key`` does not exist; returns their number."""
    insert = _insert(session, cast("Table", table.__table__)).on_conflict_do_nothing(index_elements=key)
    options = {"preserve_rowcount": True}
    if len(rows) == 1:
        # Rows as parameters, so that the statement is compiled only once.
        found = [session.execute(insert, dict(rows[0]), execution_options=options)]
    else:
        parts = (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))
        found = [session.execute(insert.values(part), execution_options=options) for part in parts]
    return sum(cast("CursorResult[Any]", result).rowcount for result in found)


def put(session: Session, table: type[Base], row: Mapping[str, Any], *, key: Sequence[str]) -> None:
    """Insert a row, or overwrite the one with its ``key``."""
    statement = _insert(session, table).values(**row)
    rest = {name: statement.excluded[name] for name in row if name not in key}
    session.execute(statement.on_conflict_do_update(index_elements=key, set_=rest))


def each_of(session: Session, texts: Sequence[str]) -> Any:
    """Return a table of the texts to join with; as one parameter, so that the statement is compiled only once."""
    given = literal(json.dumps(list(texts)), String)
    if session.get_bind().dialect.name == "sqlite":
        elements = func.json_each(given)
    else:
        elements = func.json_array_elements_text(cast_to(given, postgresql.JSON))
    return elements.table_valued("value", name="each_of").c.value


def each_pair_of(session: Session, numbers: Mapping[str, int]) -> tuple[Any, Any]:
    """Return a table of names and numbers to join with, as ``each_of``."""
    given = literal(json.dumps(dict(numbers)), String)
    if session.get_bind().dialect.name == "sqlite":
        pairs = func.json_each(given).table_valued("key", "value", name="each_pair_of")
        return pairs.c.key, pairs.c.value
    pairs = func.json_each_text(cast_to(given, postgresql.JSON)).table_valued("key", "value", name="each_pair_of")
    return pairs.c.key, cast_to(pairs.c.value, BigInteger)


def workloads_at_once(workload_keys: Sequence[str]) -> Iterator[dict[WorkloadDigest, str]]:
    """Yield the keys by digest, as many as fit into a statement."""
    keys = list(dict.fromkeys(workload_keys))
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        yield {workload_digest(key): key for key in keys[start : start + _KEYS_AT_ONCE]}


def lock_digest(session: Session, digest: str) -> None:
    """Take a transaction-level advisory lock; SQLite has only one writing transaction anyway."""
    if session.get_bind().dialect.name == "postgresql":
        # Signed, as PostgreSQL's integers are.
        session.execute(select(func.pg_advisory_xact_lock(int(digest[:16], 16) - 2**63)))


def now(session: Session, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> datetime:
    """Return the database's time; for SQLite, which has no server, that of ``wall``."""
    if session.get_bind().dialect.name == "sqlite":
        return wall()
    return cast("datetime", session.scalar(select(func.clock_timestamp()))).astimezone(UTC)


def _insert(session: Session, table: type[Base] | Table) -> Any:
    make = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[session.get_bind().dialect.name]
    return make(table)
