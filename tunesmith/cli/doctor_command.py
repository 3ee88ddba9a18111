"""``doctor`` and ``migrate``: what looks after a service, there in a checkout but not in the client's wheel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tunesmith import errors
from tunesmith.cli import local, options, output

_STATE_WIDTH, _CHECK_WIDTH = 4, 9
_DOCTOR_EPILOG = """\b
Examples:
  tunesmith doctor
  tunesmith doctor database broker blobs
  tunesmith doctor --json
  tunesmith doctor --worker
\b
Checks: settings, home, database, broker, blobs, engines, cage, compiler,
workers.
"""
_MIGRATE_EPILOG = """\b
Examples:
  tunesmith migrate
  TUNESMITH_DATABASE_URL_FILE=/run/secrets/database_url tunesmith migrate
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_DOCTOR_EPILOG)(doctor)
    app.command(epilog=_MIGRATE_EPILOG)(migrate)


def doctor(
    checks: Annotated[
        list[str] | None, typer.Argument(metavar="[CHECK…]", help="What to check; everything by default.")
    ] = None,
    own_worker: Annotated[
        bool, typer.Option("--worker", help="Only whether the worker of this host gives signs of life.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Check what the service on this machine needs; exits 3 when something fails.

    It reads the same settings as the API and the workers.
    """
    with local.translated():
        from worker.doctor import examining

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
            hint="Each line above says what is wrong and what to do." if not as_json else None,
        )


def migrate() -> None:
    """Bring the database to this release's schema.

    The start of an API or a worker does the same.
    """
    with local.translated():
        from storage import database as databases
        from storage.migrations import running
        from storage.settings import StorageSettings

        settings = StorageSettings()
        database = databases.Database(settings.database_url, timeout=settings.database_timeout)
        try:
            databases.migrate(database)
        finally:
            database.close()
        output.line(f"the database has revision {running.newest()}")


def _api_fields() -> list[str]:
    from api.settings import ApiSettings

    return list(ApiSettings.model_fields)


def _known(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no check {name!r}; there are {', '.join(known)}", param_hint="CHECK")


def _tell(finding: Any) -> None:
    code = "" if finding.state == "ok" else f"[{finding.code}] "
    output.line(f"{finding.state:<{_STATE_WIDTH}}  {finding.check:<{_CHECK_WIDTH}}  {code}{finding.message}")
    if finding.hint:
        output.line(f"{'':<{_STATE_WIDTH}}  {'':<{_CHECK_WIDTH}}  hint: {finding.hint}")
