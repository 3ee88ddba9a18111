"""Connection to SQLite or PostgreSQL; the only module that depends on which one it is.

SQLite is configured so that concurrent writers lose nothing, unlike with its defaults:

* WAL: readers never wait for the writer, nor the writer for readers.
* Every transaction that may write starts with ``BEGIN IMMEDIATE``. Python's driver starts transactions late and
  deferred: two that read before they write then overwrite each other's update, or one of them fails at once.
* ``synchronous=FULL``. In WAL mode, ``NORMAL`` survives a killed process, but a power failure undoes commits that the
  API has confirmed and the broker was notified of. One fsync per commit is cheap compared with a trial.
* Writers of one process queue for a single connection, in order; SQLite's own waiting polls with random delays.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, select, text
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from domain import errors
from process import homes
from storage import codec, integrity
from storage.migrations import running

DEFAULT_TIMEOUT = 30.0
PROBE_SECONDS = 2.0
_SYNCHRONOUS = "FULL"
_OPTIONS: dict[str, Any] = {
    "json_serializer": codec.to_json,
    "hide_parameters": True,  # errors are logged, and some statements contain secrets
}
_MIGRATION_LOCK = 7_486_171
"""Any number, the same in all processes that migrate."""


class Database:
    """Engine and sessions of one database. Sessions must not outlive their context managers, which do not nest
    in a thread."""

    def __init__(self, url: str, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """``timeout`` is the time in seconds that a transaction waits for a lock. Raises ConfigurationError."""
        self.url = _parse(url)
        if self.url.get_backend_name() == "sqlite":
            self._writer = _sqlite(self.url, timeout, begin="BEGIN IMMEDIATE", pool_size=1, max_overflow=0)
            self._reader = _sqlite(self.url, timeout, begin="BEGIN", query_only=True, pool_size=4, max_overflow=12)
            # Not the writer's connection: another thread may hold it for longer.
            self._prober = _sqlite(self.url, PROBE_SECONDS, begin="BEGIN IMMEDIATE", pool_size=1, max_overflow=0)
        else:
            self._writer = self._prober = _postgresql(self.url, timeout)
            self._reader = self._writer.execution_options(postgresql_readonly=True, isolation_level="REPEATABLE READ")

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Open a session that commits at the end and rolls back on an exception.

        On SQLite, it holds the only write lock from the first query on. PostgreSQL locks only rows that are written, or
        read with ``jobs.holds``: anything else may change after it was read.
        """
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a read-only session with a consistent snapshot from the first query on. Never hold it while
        waiting for others."""
        with Session(self._reader) as session:
            yield session

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """Open a transaction that only one process at a time can enter, with foreign keys checked at its end.

        SQLite changes a table by recreating it, and dropping the old one would delete rows that refer to it.
        """
        with self._writer.connect() as connection:
            if connection.dialect.name == "sqlite":
                yield from _migrating_sqlite(connection)
            else:
                yield from _migrating_postgresql(connection)

    def ping(self) -> None:
        """Raise SQLAlchemyError if the database does not respond."""
        with self.reading() as session:
            session.execute(select(1))

    def check_writable(self) -> None:
        """Write within ``PROBE_SECONDS`` and roll back; for SQLite, take the lock and allocate disk space.

        Raises SQLAlchemyError if the database is locked, read-only or unreachable, and OSError if its disk is full.
        """
        with Session(self._prober) as session:
            if self.url.get_backend_name() == "postgresql":
                session.execute(text(f"SET LOCAL lock_timeout = {int(PROBE_SECONDS * 1000)}"))
            session.execute(text("UPDATE alembic_version SET version_num = version_num"))
            session.rollback()
        if self.url.get_backend_name() == "sqlite":
            homes.check_space(Path(str(self.url.database)).parent)

    def close(self) -> None:
        for engine in (self._writer, self._reader, self._prober):
            engine.dispose()


def migrate(database: Database) -> None:
    """Upgrade the schema to the newest revision; safe for concurrent processes.

    Raises DatabaseUnavailable if the database does not respond, DatabaseDamaged if it or a table is corrupt, and
    ConfigurationError for a revision of a newer release or of none.
    """
    with translated_errors(), database.migrating() as connection:
        running.upgrade(connection)
        integrity.probe_tables(connection)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Convert errors of the driver to DatabaseUnavailable or DatabaseDamaged, for the start of a process."""
    try:
        yield
    except (OperationalError, PoolTimeout) as error:
        raise unavailable(error) from error
    except DatabaseError as error:
        if integrity.is_damaged(error):
            raise unavailable(error) from error
        raise


def unavailable(error: SQLAlchemyError | sqlite3.Error) -> errors.DatabaseUnavailable | errors.DatabaseDamaged:
    """Convert a driver's error, in one line; the message contains hosts and users, never a password."""
    reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
    kind = errors.DatabaseDamaged if integrity.is_damaged(error) else errors.DatabaseUnavailable
    return kind(f"the database cannot be used: {reason}")


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise errors.ConfigurationError(
            "invalid database URL", hint="Write TUNESMITH_DATABASE_URL as sqlite:////folder/db.sqlite3."
        ) from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise errors.ConfigurationError(
            f"{parsed.get_backend_name()!r} databases are not supported", hint="Use sqlite or postgresql."
        )
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise errors.ConfigurationError(
                "an in-memory database cannot be shared", hint="Put a file name in the URL."
            )
        with homes.making(Path(str(parsed.database)).parent) as folder:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return parsed


def _postgresql(url: URL, timeout: float) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=True, pool_timeout=timeout, **_OPTIONS)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise errors.ConfigurationError(
            f"the driver for {url.drivername!r} is not installed",
            hint="Install psycopg in the service's environment, and use postgresql+psycopg://…",
        ) from error

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.execute(f"SET lock_timeout = {int(timeout * 1000)}")
        connection.commit()

    return engine


def _sqlite(url: URL, timeout: float, *, begin: str, query_only: bool = False, **pool: Any) -> Engine:
    engine = create_engine(url, connect_args={"timeout": timeout}, pool_timeout=timeout, **_OPTIONS, **pool)

    @event.listens_for(engine, "do_connect")
    def keep_private(*_details: object) -> None:
        # Create the file, whose mode SQLite copies to its other files. It is not opened: closing it would release
        # the locks of other connections of this process.
        if not str(url.database).startswith("file:"):
            with contextlib.suppress(OSError):
                os.mknod(str(url.database), stat.S_IFREG | 0o600)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver starts no transactions itself
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={_SYNCHRONOUS}")
        connection.execute("PRAGMA foreign_keys=ON")
        if query_only:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _migrating_sqlite(connection: Connection) -> Iterator[Connection]:
    driver = connection.connection.driver_connection
    assert driver is not None  # noqa: S101 - a checked-out connection has one
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        with connection.begin():
            yield connection
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise RuntimeError(f"the migration breaks foreign keys: {broken[:5]}")
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


def _migrating_postgresql(connection: Connection) -> Iterator[Connection]:
    with connection.begin():
        # Another process may migrate for minutes; waiting for a table lock still times out.
        timeout = connection.scalar(text("SHOW lock_timeout"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        connection.execute(text("SELECT set_config('lock_timeout', :timeout, true)"), {"timeout": timeout})
        yield connection
