"""Upgrading works from nothing, from every saved old database, from any folder, and for many processes at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import select, text

from storage import artifacts, jobs, records
from storage.database import Database, migrate
from storage.migrations import running
from storage.tables import Base
from tests.storage import saving

ROOT = Path(__file__).resolve().parents[2]
SAVED = sorted(saving.SAVED.glob("*.sql"))
MIGRATE = "import sys; from storage.database import Database, migrate; migrate(Database(sys.argv[1]))"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'folder with 100% of spaces' / 'db.sqlite3'}")
    yield database
    database.close()


def load(database: Database, dump: Path) -> None:
    connection = sqlite3.connect(str(database.url.database))
    connection.executescript(dump.read_text())
    connection.close()


def schema(database: Database) -> list[tuple[str, list[str]]]:
    """What was created, with the constraints of each table sorted: one that is made anew gets them in any order."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
    with database.reading() as session:
        found = session.execute(text(query)).all()
    parts = {name: " ".join(sql.split()).removesuffix(")").rstrip().split(", CONSTRAINT ") for name, sql in found}
    return [(name, [columns, *sorted(constraints)]) for name, (columns, *constraints) in parts.items()]


def differences(database: Database) -> list[object]:
    with database.migrating() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))


def test_upgrading_from_nothing_gives_the_tables(empty: Database) -> None:
    migrate(empty)
    assert differences(empty) == []
    migrate(empty)


def test_the_tables_are_what_the_revisions_make(database: Database) -> None:
    assert differences(database) == []


@pytest.mark.parametrize("dump", SAVED, ids=lambda path: path.stem)
def test_a_saved_old_database_is_upgraded_and_keeps_its_rows(empty: Database, dump: Path) -> None:
    load(empty, dump)
    migrate(empty)
    assert differences(empty) == []
    with empty.reading() as session:
        (job,), _ = jobs.page(session, limit=10)
        assert job.request.budget.trials == 64
        artifact = artifacts.of_job(session, job.id)
        assert artifact
        assert artifact.report.timings
        assert len(records.of_job(session, job.id)) == 2


@pytest.mark.parametrize("dump", SAVED, ids=lambda path: path.stem)
def test_a_revision_that_was_saved_has_not_changed(empty: Database, tmp_path: Path, dump: Path) -> None:
    load(empty, dump)
    fresh = Database(f"sqlite:///{tmp_path / 'fresh.sqlite3'}")
    with fresh.migrating() as connection:
        running.upgrade(connection, dump.stem)
    assert schema(fresh) == schema(empty)
    fresh.close()


def test_every_revision_has_a_saved_database() -> None:
    revisions = {script.revision for script in ScriptDirectory(str(running.HERE)).walk_revisions()}
    assert {dump.stem for dump in SAVED} == revisions


def test_a_saved_database_has_a_row_in_every_table(empty: Database, tmp_path: Path) -> None:
    load(empty, saving.save(tmp_path))
    with empty.reading() as session:
        filled = [table.name for table in Base.metadata.sorted_tables if session.execute(select(table)).first()]
    assert filled == [table.name for table in Base.metadata.sorted_tables]
    with pytest.raises(FileExistsError):
        saving.save(tmp_path)


def test_a_failed_upgrade_leaves_nothing(empty: Database) -> None:
    def fail() -> None:
        with empty.migrating() as connection:
            running.upgrade(connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert schema(empty) == []


def test_an_upgrade_that_breaks_references_is_refused(empty: Database) -> None:
    migrate(empty)
    with pytest.raises(RuntimeError, match="foreign keys"), empty.migrating() as connection:
        connection.execute(text("INSERT INTO job_labels (job_id, name, value) VALUES ('j-nothing', 'a', 'b')"))
    with empty.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM job_labels")) == 0
        assert session.scalar(text("PRAGMA foreign_keys")) == 1


def test_processes_that_start_together_upgrade_once_from_any_folder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'db.sqlite3'}"
    command = [sys.executable, "-W", "error", "-c", MIGRATE, url]
    processes = [subprocess.Popen(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 3
    database = Database(url)
    assert differences(database) == []
    database.close()
