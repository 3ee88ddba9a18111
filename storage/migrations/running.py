"""Alembic, called as a library: no alembic.ini, no working directory, no logging set up behind the caller's back."""

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
    """The revision that this release works with."""
    head = ScriptDirectory(str(HERE)).get_current_head()
    assert head is not None  # noqa: S101 - there is a first revision
    return head


def current(connection: Connection) -> str | None:
    """The revision of the database; None when there is nothing in it yet."""
    return MigrationContext.configure(connection).get_current_revision()


def is_known(revision: str) -> bool:
    return revision in {script.revision for script in ScriptDirectory(str(HERE)).walk_revisions()}


def upgrade(connection: Connection, revision: str = "head") -> None:
    """``connection`` is in a transaction, which stays open. Raises ConfigurationError where a newer release was."""
    found = current(connection)
    if found is not None and not is_known(found):
        raise errors.ConfigurationError(
            f"the database is of a newer release: it has revision {found}, and this release knows {newest()} at most",
            hint="Start the release that migrated it, or restore the backup that was made before.",
        )
    command.upgrade(_configuration(connection), revision)


def write_revision(connection: Connection, message: str) -> None:
    """Write the difference between a database at head and the tables as a new revision."""
    number = len(list((HERE / "versions").glob("r*.py"))) + 1
    command.revision(_configuration(connection), message, autogenerate=True, rev_id=f"{number:04d}")


def _configuration(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.set_main_option("file_template", "r%%(rev)s_%%(slug)s")
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    return config
