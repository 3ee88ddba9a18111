"""Check of the database: it responds, is writable, has the schema of this release, and its clock agrees."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from domain import errors
from serve.doctor import findings
from serve.doctor.findings import Finding
from storage import database as databases
from storage import integrity, statements
from storage.database import Database
from storage.migrations import running

CHECK, CLOCK = "database", "clock"
_WORTH_TELLING_SECONDS = 2.0
_WRONG_SECONDS = 240.0
"""Webhook receivers reject signatures older than five minutes, S3 those older than fifteen."""
_LOOK_SECONDS = 10.0
"""Time limit for checking the pages of a SQLite database; a large one is checked partially."""
_WRITE_HINT = "Its user must own the tables, and the server must not be a read-only standby."
_SPACE_HINT = "Free disk space, and check that this user may write to the database's folder."


def check(database: Database) -> list[Finding]:
    try:
        return list(_checked(database))
    except SQLAlchemyError as error:
        return [findings.failed(CHECK, databases.unavailable(error))]
    except errors.TunesmithError as error:
        return [findings.failed(CHECK, error)]


def _checked(database: Database) -> Iterator[Finding]:
    started = time.monotonic()
    with database.reading() as session:
        connection = session.connection()
        dialect = connection.dialect
        version = ".".join(str(part) for part in dialect.server_version_info or ())
        took = time.monotonic() - started
        driver = "" if dialect.name == "sqlite" else f" with {dialect.driver} at {database.url.host}"
        yield findings.ok(CHECK, f"{dialect.name} {version}{driver} responds in {took * 1e3:.0f} ms")
        found = running.current(connection)
        yield schema(found)
        if found == running.newest():
            integrity.probe_tables(connection)
            yield findings.ok(CHECK, "all its tables are readable")
        if dialect.name == "postgresql":
            yield clock(_ahead(session))
    integrity.quick_check(database.url, seconds=_LOOK_SECONDS)
    if found is not None:
        yield _writable(database)


def schema(found: str | None) -> Finding:
    """Check the revision. Raises ConfigurationError if this release cannot use it."""
    newest = running.newest()
    if found == newest:
        return findings.ok(CHECK, f"its schema has the newest revision, {found}")
    hint = "Run tunesmith migrate, or start the API or a worker, which migrate it too."
    if found is None:
        return findings.warn(CHECK, "database_empty", "it has no tables yet", hint)
    running.check(found)
    return findings.warn(CHECK, "database_behind", f"its schema has revision {found}; the newest is {newest}", hint)


def clock(ahead: float) -> Finding:
    """Check the clock; ``ahead`` is this host's time minus the server's, in seconds."""
    message = f"this host's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the database server's"
    hint = "Synchronize both with NTP: a wrong time makes signatures for S3 and webhooks invalid."
    if abs(ahead) > _WRONG_SECONDS:
        return findings.fail(CLOCK, "clock_wrong", message, hint)
    if abs(ahead) > _WORTH_TELLING_SECONDS:
        return findings.warn(CLOCK, "clock_differs", message, hint)
    return findings.ok(CLOCK, f"the clocks of this host and the database server differ by {abs(ahead):.1f} s")


def _ahead(session: Session) -> float:
    before = datetime.now(UTC)
    theirs = statements.now(session)
    after = datetime.now(UTC)
    return ((before + (after - before) / 2) - theirs).total_seconds()


def _writable(database: Database) -> Finding:
    try:
        database.check_writable()
    except SQLAlchemyError as error:
        return findings.fail(CHECK, "database_read_only", databases.unavailable(error).message, _WRITE_HINT)
    except OSError as error:
        message = f"cannot write beside it: {error.strerror or error}"
        return findings.fail(CHECK, "database_read_only", message, _SPACE_HINT)
    return findings.ok(CHECK, "it accepts writes")
