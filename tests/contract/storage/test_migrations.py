"""Upgrading works from nothing, from every saved database, from any folder, and for many processes at once.

What a later release will do is tested with a next revision of the tests' own.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, select, text
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import Job
from domain.records import ImportedRecord, ImportState, Provenance
from storage import artifacts, jobs, record_pages, records
from storage.database import Database, migrate
from storage.migrations import running
from storage.record_filters import RecordFilter
from storage.tables import Base
from tests.support.servers import processes
from tests.support.storage import moving, revisions, saving

ROOT = Path(__file__).resolve().parents[3]
SAVED = sorted(saving.SAVED.glob("*.sql"))
LOCK_SECONDS = 0.5
MIGRATE = "import sys; from storage.database import Database, migrate; migrate(Database(sys.argv[1]))"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'folder with 100% of spaces' / 'db.sqlite3'}")
    yield database
    database.close()


@pytest.fixture
def empty_postgresql(postgresql_url: str) -> Iterator[Database]:
    database = Database(postgresql_url, timeout=LOCK_SECONDS)
    yield database
    database.close()


@pytest.fixture(params=["empty", "empty_postgresql"], ids=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def load(database: Database, dump: Path) -> None:
    connection = sqlite3.connect(str(database.url.database))
    connection.executescript(dump.read_text())
    connection.close()


def load_into_either(database: Database, dump: Path, folder: Path) -> None:
    """Into PostgreSQL, rows go by way of a SQLite file in ``folder``."""
    if database.url.get_backend_name() == "sqlite":
        load(database, dump)
        return
    file = Database(f"sqlite:///{folder / 'saved.sqlite3'}")
    load(file, dump)
    file.close()
    with database.migrating() as connection:
        running.upgrade(connection, dump.stem)
        moving.copy_rows(folder / "saved.sqlite3", connection)


def counts(database: Database) -> dict[str, int | None]:
    """Rows of every table."""
    with database.reading() as session:
        known = inspect(session.connection()).get_table_names()
        names = [table.name for table in Base.metadata.sorted_tables if table.name in known]
        return {name: session.scalar(text(f"SELECT count(*) FROM {name}")) for name in names}  # noqa: S608


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


def test_upgrading_from_nothing_gives_the_tables(either: Database) -> None:
    migrate(either)
    assert differences(either) == []
    migrate(either)


def test_the_tables_are_what_the_revisions_make(database: Database) -> None:
    assert differences(database) == []


@pytest.mark.parametrize("dump", SAVED, ids=lambda path: path.stem)
def test_a_saved_old_database_is_upgraded_and_keeps_its_rows(empty: Database, dump: Path) -> None:
    load(empty, dump)
    migrate(empty)
    assert differences(empty) == []
    assert_rows_were_kept(empty)


@pytest.mark.parametrize("dump", SAVED, ids=lambda path: path.stem)
def test_a_saved_database_is_upgraded_to_the_next_revision(
    either: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump: Path
) -> None:
    load_into_either(either, dump, tmp_path)
    known = counts(either)
    revisions.release_next(monkeypatch, tmp_path)
    migrate(either)
    with either.reading() as session:
        assert running.current(session.connection()) == running.newest() == revisions.NEXT
        assert session.scalar(text("SELECT count(*) FROM jobs WHERE size = 'small'")) == known["jobs"]
    assert counts(either).items() >= known.items()
    assert_rows_were_kept(either)
    monkeypatch.undo()
    with pytest.raises(errors.ConfigurationError, match=f"newer release: its revision is {revisions.NEXT}"):
        migrate(either)


def finished(session: Session) -> Job:
    """The one of the saved jobs that has ended; newer ones are at work."""
    (job,) = (job for job in jobs.page(session, limit=10)[0] if job.state.is_final)
    return job


def assert_rows_were_kept(database: Database) -> None:
    with database.reading() as session:
        job = finished(session)
        assert job.request.budget.trials == 64
        artifact = artifacts.of_job(session, job.id)
        assert artifact
        assert artifact.report.timings
        assert len(records.of_job(session, job.id)) == 2


def test_imported_records_move_out_of_the_measured_ones(either: Database, tmp_path: Path) -> None:
    """They go to the local owner, and efforts that counted them are forgotten."""
    dump = saving.SAVED / "0100.sql"
    load_into_either(either, dump, tmp_path)
    with either.transaction() as session:
        session.execute(text("UPDATE records SET job_id = 'imported:1' WHERE id = 1"))
    migrate(either)
    with either.reading() as session:
        (moved,), _ = record_pages.page(session, RecordFilter(provenance=Provenance.IMPORTED), limit=9)
        assert isinstance(moved, ImportedRecord)
        assert (moved.owner, moved.state, moved.latency) == ("local", ImportState.UNTRIED, 1.5e-3)
        assert session.scalar(text("SELECT count(*) FROM records")) == 1
        assert session.scalar(text("SELECT count(*) FROM tuning_tasks WHERE effort_trials IS NOT NULL")) == 0


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


def test_a_failed_upgrade_leaves_nothing(either: Database) -> None:
    def fail() -> None:
        with either.migrating() as connection:
            running.upgrade(connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with either.migrating() as connection:
        assert inspect(connection).get_table_names() == []


def test_a_next_revision_that_fails_leaves_the_database_as_it_was(
    either: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(either)
    revisions.release_next(monkeypatch, tmp_path)
    (revision,) = running.HERE.glob(f"versions/r{revisions.NEXT}_*.py")
    revision.write_text(revision.read_text() + "    raise ZeroDivisionError\n")
    with pytest.raises(ZeroDivisionError):
        migrate(either)
    assert differences(either) == []
    monkeypatch.undo()
    migrate(either)


def test_a_database_from_before_the_first_release_is_refused(either: Database) -> None:
    migrate(either)
    with either.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0011'"))
    with pytest.raises(errors.ConfigurationError, match="older than the first release: its revision 0011") as caught:
        migrate(either)
    assert "TUNESMITH_HOME" in str(caught.value.hint)


def test_a_database_of_a_newer_release_is_refused(either: Database) -> None:
    migrate(either)
    with either.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(errors.ConfigurationError, match="newer release: its revision is 9999") as caught:
        migrate(either)
    assert caught.value.hint
    assert running.newest() in caught.value.message


def test_a_migration_waits_for_another_process_and_not_for_a_table(empty_postgresql: Database) -> None:
    """Another process may take minutes; a table that somebody holds is told of soon."""
    holder = Database(empty_postgresql.url.render_as_string(hide_password=False))
    with ThreadPoolExecutor(1) as pool:
        with holder.migrating():
            waiting = pool.submit(migrate, empty_postgresql)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=3 * LOCK_SECONDS)
        waiting.result(timeout=30)
    with holder.transaction() as session:
        session.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(errors.DatabaseUnavailable, match="lock timeout"):
            migrate(empty_postgresql)
    holder.close()


def test_a_server_that_does_not_answer_is_told_without_the_password() -> None:
    database = Database(f"postgresql+psycopg://me:hunter2@127.0.0.1:{processes.free_port()}/tunesmith")
    with pytest.raises(errors.DatabaseUnavailable, match="connection") as caught:
        migrate(database)
    assert "hunter2" not in caught.value.message
    database.close()


def test_an_upgrade_that_breaks_references_is_refused(empty: Database) -> None:
    migrate(empty)
    with pytest.raises(RuntimeError, match="foreign keys"), empty.migrating() as connection:
        connection.execute(text("INSERT INTO job_labels (job_id, name, value) VALUES ('j-nothing', 'a', 'b')"))
    with empty.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM job_labels")) == 0
        assert session.scalar(text("PRAGMA foreign_keys")) == 1


def test_processes_that_start_together_upgrade_once_from_any_folder(either: Database, tmp_path: Path) -> None:
    url = either.url.render_as_string(hide_password=False)
    command = [sys.executable, "-W", "error", "-c", MIGRATE, url]
    started = [subprocess.Popen(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) for _ in range(4)]
    assert [process.wait(timeout=120) for process in started] == [0] * 4
    assert differences(either) == []
