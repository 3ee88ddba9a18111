"""What tells that nothing was committed since."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage.database import Database, migrate
from storage.versions import SqliteVersion
from tests.support.storage.factories import add_job, add_model


def test_it_changes_with_a_commit_and_with_nothing_else(sqlite_database: Database) -> None:
    before = sqlite_database.version()
    assert before is not None
    with sqlite_database.reading() as session:
        session.connection().exec_driver_sql("SELECT count(*) FROM jobs").all()
    assert sqlite_database.version() == before
    with sqlite_database.transaction() as session:
        add_job(session)
    after = sqlite_database.version()
    assert after is not None
    assert after != before
    assert sqlite_database.version() == after


def test_what_is_not_committed_yet_does_not_count(sqlite_database: Database) -> None:
    before = sqlite_database.version()
    with sqlite_database.transaction() as session:
        add_model(session)
        session.flush()
        assert sqlite_database.version() == before
    assert sqlite_database.version() != before


@pytest.mark.contract
def test_other_processes_count(sqlite_database: Database) -> None:
    before = sqlite_database.version()
    program = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]);"
        "connection.execute('CREATE TABLE other (x)'); connection.commit()"
    )
    subprocess.run([sys.executable, "-c", program, str(sqlite_database.url.database)], check=True)
    assert sqlite_database.version() != before


def test_versions_of_two_connections_are_never_the_same(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/a%23b?c.sqlite3".replace("?", "%3F"))
    migrate(database)
    version = SqliteVersion(str(database.url.database))
    first = version.now()
    version.close()
    assert first is not None
    assert version.now() not in (None, first)
    version.close()
    database.close()


def test_a_database_that_cannot_be_opened_has_none(tmp_path: Path) -> None:
    assert SqliteVersion(str(tmp_path / "nowhere" / "db.sqlite3")).now() is None
