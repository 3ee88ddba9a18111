"""Alembic, called as a library: no alembic.ini, no working directory, no logging set up behind the caller's back."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

HERE = Path(__file__).resolve().parent


def upgrade(connection: Connection, revision: str = "head") -> None:
    """``connection`` is in a transaction, which stays open."""
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
