"""``backup``, ``restore`` and ``gc``: for whoever runs the service, beside its settings and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith.cli import local, options, output

if TYPE_CHECKING:
    from storage.backups import Backup

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
\b
Workers do it by themselves once a day.
"""


def register(app: typer.Typer) -> None:
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
        restored = backups.restore(settings, blob_stores.open_store(settings), source)
    return _tell("restored", restored, as_json=as_json)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove stored bytes that no model and no artifact names any more."""
    with local.translated():
        found = _collect(dry_run=dry_run)
    if as_json:
        output.document({"blobs": found.blobs, "bytes": found.size_bytes, "dry_run": dry_run})
    else:
        done = "would be removed" if dry_run else "removed"
        output.line(f"{found.blobs} blobs {done}, {output.size(found.size_bytes)}")


def _collect(*, dry_run: bool) -> Any:
    from storage import blob_stores
    from storage.database import Database, migrate
    from storage.settings import StorageSettings
    from worker import clock, housekeeping
    from worker.settings import WorkerSettings

    settings = StorageSettings()
    database = Database(settings.database_url, timeout=settings.database_timeout)
    try:
        migrate(database)
        blobs = blob_stores.open_store(settings)
        return housekeeping.collect(database, blobs, WorkerSettings(), now=clock.now(), dry_run=dry_run)
    finally:
        database.close()


def _tell(done: str, what: Backup, *, as_json: bool) -> int:
    if as_json:
        counts = {"blobs": what.blobs, "bytes": what.size_bytes, "missing": what.missing}
        output.document({"path": str(what.path), **counts})
    else:
        output.line(f"{done}: the database and {what.blobs} blobs, {output.size(what.size_bytes)}")
        for digest in what.missing:
            output.note(f"missing or damaged: {digest}")
    return 1 if what.missing else 0
