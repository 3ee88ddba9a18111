"""The connection to SQLite or PostgreSQL; the only place that knows which one it is.

SQLite is set up so that concurrent writers lose nothing, which its defaults do not give:

* WAL: readers never wait for the writer, nor it for them.
* Every transaction that may write starts with ``BEGIN IMMEDIATE``. Python's driver starts them late and deferred: two
  that read before they write then overwrite each other's update, or one of them fails at once without waiting.
* ``synchronous=FULL``. In WAL mode ``NORMAL`` survives a killed process, but lost power undoes commits that the API has
  already answered and the broker has already been told of. One fsync a commit is cheap beside a trial.
* Writers of one process queue for a single connection, in order; SQLite's own waiting is a lottery with pauses.
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
from process.homes import making
from storage import codec, integrity
from storage.migrations import running

DEFAULT_TIMEOUT = 30.0
_SYNCHRONOUS = "FULL"
_OPTIONS: dict[str, Any] = {
    "json_serializer": codec.to_json,
    "hide_parameters": True,  # errors are logged, and some statements carry secrets
}
_MIGRATION_LOCK = 7_486_171
"""Any number, the same in every process that migrates."""


class Database:
    """Both context managers hand out a session that must not outlive them; neither nests in the same thread."""

    def __init__(self, url: str, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """``timeout``: seconds that a transaction waits for its turn. Raises ConfigurationError."""
        self.url = _parse(url)
        if self.url.get_backend_name() == "sqlite":
            self._writer = _sqlite(self.url, timeout, begin="BEGIN IMMEDIATE", pool_size=1, max_overflow=0)
            self._reader = _sqlite(self.url, timeout, begin="BEGIN", query_only=True, pool_size=4, max_overflow=12)
        else:
            self._writer = _postgresql(self.url, timeout)
            self._reader = self._writer.execution_options(postgresql_readonly=True, isolation_level="REPEATABLE READ")

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Commits at the end, rolls back on an exception. From the first query on it holds SQLite's only write lock.

        PostgreSQL locks what is written, or read with ``jobs.holds``: nothing else stays as it was read.
        """
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent view, from the first query on; a write fails. Never hold it while waiting for others."""
        with Session(self._reader) as session:
            yield session

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction that only one process at a time is in, with foreign keys checked at its end.

        SQLite changes a table by making it anew, and dropping the old one would delete what refers to it.
        """
        with self._writer.connect() as connection:
            if connection.dialect.name == "sqlite":
                yield from _migrating_sqlite(connection)
            else:
                yield from _migrating_postgresql(connection)

    def ping(self) -> None:
        """Raises SQLAlchemyError where the database does not respond."""
        with self.reading() as session:
            session.execute(select(1))

    def try_writing(self) -> None:
        """Write, and undo that again. Raises SQLAlchemyError where the database takes no writes."""
        with Session(self._writer) as session:
            session.execute(text("UPDATE alembic_version SET version_num = version_num"))
            session.rollback()

    def close(self) -> None:
        self._writer.dispose()
        self._reader.dispose()


def migrate(database: Database) -> None:
    """Bring the schema to the newest revision; nothing to do is fine, and so are many processes doing it at once.

    Raises DatabaseUnavailable when it does not answer, DatabaseDamaged also where only a table is, and
    ConfigurationError when it is of a newer release, or of none.
    """
    with translated_errors(), database.migrating() as connection:
        running.upgrade(connection)
        integrity.probe_tables(connection)


@contextmanager
def translated_errors() -> Iterator[None]:
    """For work at a start: raises DatabaseUnavailable or DatabaseDamaged in place of what the driver raised."""
    try:
        yield
    except (OperationalError, PoolTimeout) as error:
        raise unavailable(error) from error
    except DatabaseError as error:
        if integrity.is_damaged(error):
            raise unavailable(error) from error
        raise


def unavailable(error: SQLAlchemyError | sqlite3.Error) -> errors.DatabaseUnavailable | errors.DatabaseDamaged:
    """What the driver said, in one line; it names hosts and users, never a password."""
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
        with making(Path(str(parsed.database)).parent) as folder:
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
        # Where there is none yet; what SQLite puts beside it takes its mode. Never opened here: to close it would
        # take away the locks that other connections of this process hold.
        if not str(url.database).startswith("file:"):
            with contextlib.suppress(OSError):
                os.mknod(str(url.database), stat.S_IFREG | 0o600)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
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
        # Another process may migrate for minutes; what waits for a table's lock still gives up.
        timeout = connection.scalar(text("SHOW lock_timeout"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        connection.execute(text("SELECT set_config('lock_timeout', :timeout, true)"), {"timeout": timeout})
        yield connection
