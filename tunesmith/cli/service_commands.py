"""Commands that run and maintain a service; they need a checkout, as the wheel holds the client only.

``serve``, ``worker``, ``doctor``, ``migrate``, ``backup``, ``restore``, ``blobs copy`` and ``gc``.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith import connection, errors
from tunesmith.cli import local, options, output

if TYPE_CHECKING:
    from storage.backups import Backup
    from storage.database import Database

_SERVE_EPILOG = """\b
Examples:
  tunesmith serve
  tunesmith serve --host 0.0.0.0 --port 8080
\b
It prints a link that opens the dashboard. Settings:
docs/reference/settings.md.
"""
_STATE_WIDTH, _CHECK_WIDTH = 4, 9
_DOCTOR_EPILOG = """\b
Examples:
  tunesmith doctor
  tunesmith doctor database broker blobs
  tunesmith doctor --json
  tunesmith doctor --worker
\b
Checks: settings, home, database, broker, blobs, engines, sandbox, compiler,
workers.
"""
_MIGRATE_EPILOG = """\b
Examples:
  tunesmith migrate
  TUNESMITH_DATABASE_URL_FILE=/run/secrets/database_url tunesmith migrate
"""
_BACKUP_EPILOG = """\b
Examples:
  tunesmith backup /backups/monday.tar
  tunesmith backup /backups/monday
\b
For SQLite; the service may be running. Back up PostgreSQL with pg_dump
(docs/how-to/operations.md).
"""
_RESTORE_EPILOG = """\b
Examples:
  TUNESMITH_HOME=/var/lib/tunesmith tunesmith restore /backups/monday.tar
  TUNESMITH_HOME=/tmp/copy tunesmith restore --paused /backups/monday.tar
"""
_GC_EPILOG = """\b
Examples:
  tunesmith gc --dry-run
  tunesmith gc --json
  tunesmith gc --adopt --dry-run
\b
Workers do this once a day, except in a store that belongs to another
database (docs/how-to/operations.md).
"""


_blobs = typer.Typer(help="Copy models and bundles between stores.", no_args_is_help=True)
_COPY_EPILOG = """\b
Examples:
  tunesmith blobs copy file:///backups/blobs
  tunesmith blobs copy 's3://bucket/prefix?endpoint=https://s3.example.com'
\b
Copies from the store in TUNESMITH_BLOB_URL. Both stores are accessed with
the same credentials.
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_SERVE_EPILOG)(serve)
    app.command()(worker)
    app.command(epilog=_DOCTOR_EPILOG)(doctor)
    app.command(epilog=_MIGRATE_EPILOG)(migrate)
    app.add_typer(_blobs, name="blobs")
    app.command(epilog=_BACKUP_EPILOG)(backup)
    app.command(epilog=_RESTORE_EPILOG)(restore)
    app.command(epilog=_GC_EPILOG)(gc)


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.  [default: TUNESMITH_HOST or 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 for any free one.  [default: TUNESMITH_PORT or 8000]")
    ] = None,
) -> int:
    """Start broker, API and worker. Ctrl-C stops them."""
    main = _server_part("serve.supervisor").main
    given_host = host or os.environ.get("TUNESMITH_HOST") or "127.0.0.1"
    given_port = _port_of_environment() if port is None else port
    api_settings = _server_part("api.settings").ApiSettings
    return int(main(host=given_host, port=given_port, home=connection.home(), api_settings=api_settings))


def _port_of_environment() -> int:
    text = os.environ.get("TUNESMITH_PORT") or "8000"
    if not text.isdecimal() or int(text) > 65535:
        raise errors.ConfigurationError(
            f"TUNESMITH_PORT is not a port: {text!r}", hint="Use a number to 65535; 0 means any free port."
        )
    return int(text)


def worker() -> int:
    """Start a worker. Ctrl-C stops it.

    A job that is running then returns to the queue.
    """
    return int(_server_part("worker.main").main())


def _server_part(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            f"only the client is installed ({error.name} is missing)",
            hint="Start the service from a checkout: ./run serve.",
        ) from error


def doctor(
    checks: Annotated[
        list[str] | None, typer.Argument(metavar="[CHECK…]", help="Checks to run; all by default.")
    ] = None,
    own_worker: Annotated[
        bool, typer.Option("--worker", help="Only check that the worker on this host sends heartbeats.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Check the environment of a service on this machine. Exit status 3 if a check fails.

    Reads the same settings as the API and the workers.
    """
    with local.translated():
        from serve.doctor import examining

        _known(checks or [], examining.CHECKS)
        found = []
        for each in (
            [examining.own_worker()] if own_worker else examining.examine(checks or [], api_fields=_api_fields())
        ):
            found.append(each)
            if not as_json:
                _tell(each)
    if as_json:
        output.document([dataclasses.asdict(each) for each in found])
    failed = [each for each in found if each.state == "fail"]
    if failed:
        raise errors.ConfigurationError(
            f"{len(failed)} of {len(found)} checks failed: {', '.join(sorted({each.check for each in failed}))}",
            code="doctor_failed",
            hint="See the hint of each failed check above." if not as_json else None,
        )


def migrate() -> None:
    """Upgrade the database to the schema of this release.

    An API or a worker does the same when it starts.
    """
    with local.translated():
        from storage import database as databases
        from storage.migrations import running
        from storage.settings import StorageSettings

        settings = StorageSettings()
        with closing(databases.Database(settings.database_url, timeout=settings.database_timeout)) as database:
            databases.migrate(database)
        output.line(f"the database is at revision {running.newest()}")


def _api_fields() -> list[str]:
    from api.settings import ApiSettings

    return list(ApiSettings.model_fields)


def _known(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"unknown check {name!r}; choose from {', '.join(known)}", param_hint="CHECK")


def _tell(finding: Any) -> None:
    code = "" if finding.state == "ok" else f"[{finding.code}] "
    output.line(f"{finding.state:<{_STATE_WIDTH}}  {finding.check:<{_CHECK_WIDTH}}  {code}{finding.message}")
    if finding.hint:
        output.line(f"{'':<{_STATE_WIDTH}}  {'':<{_CHECK_WIDTH}}  hint: {finding.hint}")


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE.tar|FOLDER", help="Backup to create.")],
    as_json: options.Json = False,
) -> int:
    """Back up database, models and artifacts. Exit status 1 if some bytes are missing."""
    with local.translated():
        from storage import backups
        from storage.blobs import stores
        from storage.settings import StorageSettings

        settings = StorageSettings()
        made = backups.create(settings, stores.open_store(settings), target)
    return _tell_backup("backed up", made, as_json=as_json)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE.tar|FOLDER", help="Backup to restore.")],
    paused: Annotated[
        bool, typer.Option("--paused", help="Cancel its unfinished jobs and drop its unsent webhook messages.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Restore a backup into an empty home folder. Exit status 1 if some bytes are missing."""
    with local.translated():
        from storage import backups
        from storage.blobs import stores
        from storage.settings import StorageSettings

        settings = StorageSettings()
        backups.make_home(settings)
        restored = backups.restore(settings, stores.open_store(settings), source, paused=paused)
    return _tell_backup("restored", restored, as_json=as_json)


@_blobs.command(epilog=_COPY_EPILOG)
def copy(
    target: Annotated[str, typer.Argument(metavar="URL", help="Destination store, in the form of TUNESMITH_BLOB_URL.")],
    as_json: options.Json = False,
) -> int:
    """Copy all blobs that another store lacks. Exit status 1 if some are corrupt."""
    with local.translated():
        from storage import backups
        from storage.blobs import stores
        from storage.settings import StorageSettings

        settings = StorageSettings()
        there = settings.model_copy(update={"blob_url": target})
        copied = backups.copy_blobs(stores.open_store(settings), stores.open_store(there))
    if as_json:
        counts = {"blobs": copied.blobs, "bytes": copied.size_bytes, "there": copied.there}
        output.document({**counts, "damaged": copied.damaged})
    else:
        output.line(f"{copied.blobs} blobs copied, {output.size(copied.size_bytes)}; {copied.there} already present")
        for digest in copied.damaged:
            output.note(f"corrupt: {digest}")
    return 1 if copied.damaged else 0


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False,
    adopt: Annotated[bool, typer.Option("--adopt", help="Take the store over from another database.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove blobs that no model and no artifact refers to."""
    with local.translated():
        found = _collect(dry_run=dry_run, adopt=adopt)
    done = "would be removed" if dry_run else "removed"
    document = {"blobs": found.blobs, "bytes": found.size_bytes, "dry_run": dry_run}
    output.answer(document, f"{found.blobs} blobs {done}, {output.size(found.size_bytes)}", as_json=as_json)


def _collect(*, dry_run: bool, adopt: bool) -> Any:
    from storage.blobs import stores
    from storage.database import Database, translated_errors
    from storage.settings import StorageSettings
    from worker import clock, housekeeping
    from worker.settings import WorkerSettings

    settings = StorageSettings()
    with closing(Database(settings.database_url, timeout=settings.database_timeout)) as database:
        _check_schema(database)
        blobs = stores.open_store(settings)
        now = clock.now()
        with translated_errors():
            return housekeeping.collect(database, blobs, WorkerSettings(), now=now, dry_run=dry_run, adopt=adopt)


def _check_schema(database: Database) -> None:
    """Check that the database exists with this release's schema.

    A database created here would be empty, and collection would remove every blob.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from domain import errors
    from storage.database import unavailable
    from storage.migrations import running

    url = database.url
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise errors.ConfigurationError(
            f"database not found: {url.database}", hint="Set TUNESMITH_HOME to the service's home folder."
        )
    try:
        with database.reading() as session:
            found = running.current(session.connection())
    except SQLAlchemyError as error:
        raise unavailable(error) from error
    if found != running.newest():
        raise errors.ConfigurationError(
            f"the database has revision {found or 'none'}; this release needs {running.newest()}",
            hint="Check that TUNESMITH_HOME or TUNESMITH_DATABASE_URL is the service's. To upgrade: tunesmith migrate.",
        )


def _tell_backup(done: str, what: Backup, *, as_json: bool) -> int:
    if as_json:
        counts = {"blobs": what.blobs, "bytes": what.size_bytes, "missing": what.missing}
        ended = {"paused": dataclasses.asdict(what.paused)} if what.paused else {}
        output.document({"path": str(what.path), **counts, **ended})
    else:
        output.line(f"{done}: the database and {what.blobs} blobs, {output.size(what.size_bytes)}")
        if what.paused:
            output.line(f"canceled {what.paused.jobs} jobs; dropped {what.paused.messages} webhook messages")
        for digest in what.missing:
            output.note(f"missing or corrupt: {digest}")
    return 1 if what.missing else 0
