"""Integrity checks of a database, and recognition of driver errors that mean corruption."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from pathlib import Path

from sqlalchemy import URL, Connection

from domain import errors
from storage.tables import Base

_SQLITE_ERRORS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_POSTGRESQL_ERRORS = frozenset({"XX001", "XX002", "42P01", "42P07", "42703"})
"""Data or index corrupted; table missing or already existing; column missing."""
_WORDS = tuple(
    map(re.compile, (r"no such (table|column)", r"table .* already exists$", r"table .* has no column named "))
)
"""SQLite has the same error number for these as for programming errors."""


def is_damaged(error: Exception) -> bool:
    """Return whether the error means: not a database, corrupt, or missing tables."""
    driver_error = getattr(error, "orig", None) or error
    if getattr(driver_error, "sqlstate", None) in _POSTGRESQL_ERRORS:
        return True
    if not isinstance(driver_error, sqlite3.Error):
        return False
    # The lowest byte is the primary code.
    if getattr(driver_error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_ERRORS:
        return True
    return any(words.match(str(driver_error)) for words in _WORDS)


def probe_tables(connection: Connection) -> None:
    """Read a row of each table, to detect missing or corrupt tables at startup instead of in a job.

    Raises errors of the driver.
    """
    quote = connection.dialect.identifier_preparer.quote
    for table in Base.metadata.sorted_tables:
        names = ", ".join(quote(column.name) for column in table.columns)
        connection.exec_driver_sql(f"SELECT {names} FROM {quote(table.name)} LIMIT 1").first()  # noqa: S608 - ours


def quick_check(url: URL, *, seconds: float) -> None:
    """Run SQLite's quick check for at most ``seconds``, so a large database is checked partially.

    PostgreSQL has tools of its own. Raises DatabaseDamaged and DatabaseUnavailable.
    """
    if url.get_backend_name() != "sqlite" or str(url.database).startswith("file:"):
        return
    over = threading.Event()
    uri = Path(str(url.database)).absolute().as_uri() + "?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:

            def interrupt() -> None:
                over.set()
                connection.interrupt()

            timer = threading.Timer(seconds, interrupt)
            timer.start()
            try:
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            finally:
                timer.cancel()
                timer.join()
    except sqlite3.Error as error:
        if over.is_set():
            return
        if is_damaged(error):
            raise errors.DatabaseDamaged(f"the database cannot be used: {error}") from error
        raise errors.DatabaseUnavailable(f"the database cannot be used: {error}") from error
    if found != "ok" and not over.is_set():
        raise errors.DatabaseDamaged(f"the database is corrupt: {' '.join(str(found).split())}")
