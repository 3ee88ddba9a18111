"""``backup``, ``restore``, ``blobs copy`` and ``gc``: for whoever runs the service, beside its settings and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith.cli import local, options, output

if TYPE_CHECKING:
    from storage.backups import Backup
    from storage.database import Database

_BACKUP_EPILOG = """\b
Examples:
  tunesmith backup /backups/monday.tar
  tunesmith backup /backups/monday
\b
For SQLite; the service may run meanwhile. Of PostgreSQL, pg_dump makes
backups (docs/operations.md).
"""
_RESTORE_EPILOG = """\b
Examples:
  TUNESMITH_HOME=/var/lib/tunesmith tunesmith restore /backups/monday.tar
"""
_GC_EPILOG = """\b
Examples:
  tunesmith gc --dry-run
  tunesmith gc --json
  tunesmith gc --adopt --dry-run
\b
Workers do it by themselves once a day, and not in a store that belongs to
another database (docs/operations.md).
"""


blobs_app = typer.Typer(help="The bytes of models and bundles.", no_args_is_help=True)
_COPY_EPILOG = """\b
Examples:
  tunesmith blobs copy file:///backups/blobs
  tunesmith blobs copy 's3://bucket/prefix?endpoint=https://s3.example.com'
\b
From where TUNESMITH_BLOB_URL says; the same credentials are used for both.
"""


def register(app: typer.Typer) -> None:
    app.add_typer(blobs_app, name="blobs")
    app.command(epilog=_BACKUP_EPILOG)(backup)
    app.command(epilog=_RESTORE_EPILOG)(restore)
    app.command(epilog=_GC_EPILOG)(gc)


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE.tar|FOLDER", help="What is to be made.")],
    as_json: options.Json = False,
) -> int:
    """Copy database, models and artifacts; exits 1 when bytes of some are missing."""
    with local.translated():
        from storage import backups, blob_stores
        from storage.settings import StorageSettings

        settings = StorageSettings()
        made = backups.create(settings, blob_stores.open_store(settings), target)
    return _tell("backed up", made, as_json=as_json)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE.tar|FOLDER", help="What backup made.")],
    as_json: options.Json = False,
) -> int:
    """Put a backup into an empty home folder; exits 1 when it lacked bytes of some."""
    with local.translated():
        from storage import backups, blob_stores
        from storage.settings import StorageSettings

        settings = StorageSettings()
        backups.make_home(settings)
        restored = backups.restore(settings, blob_stores.open_store(settings), source)
    return _tell("restored", restored, as_json=as_json)


@blobs_app.command(epilog=_COPY_EPILOG)
def copy(
    target: Annotated[str, typer.Argument(metavar="URL", help="A store, as TUNESMITH_BLOB_URL names it.")],
    as_json: options.Json = False,
) -> int:
    """Copy all bytes that another store lacks; exits 1 when some are damaged."""
    with local.translated():
        from storage import backups, blob_stores
        from storage.settings import StorageSettings

        settings = StorageSettings()
        there = settings.model_copy(update={"blob_url": target})
        copied = backups.copy_blobs(blob_stores.open_store(settings), blob_stores.open_store(there))
    if as_json:
        counts = {"blobs": copied.blobs, "bytes": copied.size_bytes, "there": copied.there}
        output.document({**counts, "damaged": copied.damaged})
    else:
        output.line(f"{copied.blobs} blobs copied, {output.size(copied.size_bytes)}; {copied.there} were there")
        for digest in copied.damaged:
            output.note(f"damaged: {digest}")
    return 1 if copied.damaged else 0


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    adopt: Annotated[bool, typer.Option("--adopt", help="Take the store over from another database.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove stored bytes that no model and no artifact names any more."""
    with local.translated():
        found = _collect(dry_run=dry_run, adopt=adopt)
    if as_json:
        output.document({"blobs": found.blobs, "bytes": found.size_bytes, "dry_run": dry_run})
    else:
        done = "would be removed" if dry_run else "removed"
        output.line(f"{found.blobs} blobs {done}, {output.size(found.size_bytes)}")


def _collect(*, dry_run: bool, adopt: bool) -> Any:
    from storage import blob_stores
    from storage.database import Database, told
    from storage.settings import StorageSettings
    from worker import clock, housekeeping
    from worker.settings import WorkerSettings

    settings = StorageSettings()
    database = Database(settings.database_url, timeout=settings.database_timeout)
    try:
        _check_schema(database)
        blobs = blob_stores.open_store(settings)
        now = clock.now()
        with told():
            return housekeeping.collect(database, blobs, WorkerSettings(), now=now, dry_run=dry_run, adopt=adopt)
    finally:
        database.close()


def _check_schema(database: Database) -> None:
    """A database that is made or migrated here would know nothing, and all bytes would go."""
    from sqlalchemy.exc import SQLAlchemyError

    from domain import errors
    from storage.database import unavailable
    from storage.migrations import running

    url = database.url
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise errors.ConfigurationError(
            f"there is no database {url.database}", hint="Set TUNESMITH_HOME to the service's."
        )
    try:
        with database.reading() as session:
            found = running.current(session.connection())
    except SQLAlchemyError as error:
        raise unavailable(error) from error
    if found != running.newest():
        raise errors.ConfigurationError(
            f"the database has revision {found or 'none'}, and this release works with {running.newest()}",
            hint="Is TUNESMITH_HOME or TUNESMITH_DATABASE_URL the service's? tunesmith migrate brings it up to date.",
        )


def _tell(done: str, what: Backup, *, as_json: bool) -> int:
    if as_json:
        counts = {"blobs": what.blobs, "bytes": what.size_bytes, "missing": what.missing}
        output.document({"path": str(what.path), **counts})
    else:
        output.line(f"{done}: the database and {what.blobs} blobs, {output.size(what.size_bytes)}")
        for digest in what.missing:
            output.note(f"missing or damaged: {digest}")
    return 1 if what.missing else 0
