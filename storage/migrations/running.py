"""Alembic as a library, without alembic.ini, working directory or logging configuration."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from domain import errors

HERE = Path(__file__).resolve().parent


def newest() -> str:
    """Return the newest revision, which this release needs."""
    head = ScriptDirectory(str(HERE)).get_current_head()
    assert head is not None  # noqa: S101 - there is a first revision
    return head


def current(connection: Connection) -> str | None:
    """Return the revision of the database; None if it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


def check(revision: str | None) -> None:
    """Raise ConfigurationError for a revision that cannot be upgraded: one of before the first release, or a newer one.

    Revisions are numbers; None is an empty database.
    """
    scripts = ScriptDirectory(str(HERE))
    known = sorted(script.revision for script in scripts.walk_revisions())
    if revision is None or revision in known:
        return
    if revision < known[0]:
        raise errors.ConfigurationError(
            f"the database is older than the first release: its revision {revision} is below {known[0]}",
            hint="Start with a new TUNESMITH_HOME or database. To keep the records, export them with the old release "
            "first: tunesmith records export.",
        )
    raise errors.ConfigurationError(
        f"the database is from a newer release: its revision is {revision}, the newest known is {known[-1]}",
        hint="Start the release that migrated it, or restore a backup from before the migration.",
    )


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Upgrade the schema in the open transaction of ``connection``. Raises ConfigurationError as ``check``."""
    check(current(connection))
    command.upgrade(_configuration(connection), revision)


def write_revision(connection: Connection, message: str) -> None:
    """Write the difference between a database at head and the tables as a new revision."""
    number = int(newest()) + 1
    command.revision(_configuration(connection), message, autogenerate=True, rev_id=f"{number:04d}")


def _configuration(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.set_main_option("file_template", "r%%(rev)s_%%(slug)s")
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    return config
