"""What the connection promises: nothing lost, nothing half done, nothing that only SQLite would forgive."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import exc, select, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, StatementError
from sqlalchemy.schema import CreateIndex, CreateTable

from domain import errors
from storage import events, jobs
from storage.database import Database
from storage.tables import Base, EventRow, JobLabelRow, ModelRow
from tests.support.storage.counting import add_one
from tests.support.storage.factories import NOW, add_job, add_model

ROOT = Path(__file__).resolve().parents[3]


def running_job(database: Database) -> str:
    with database.transaction() as session:
        job_id = add_job(session).id
        assert jobs.claim(session, job_id, worker_id="w", now=NOW, lease_seconds=60, max_attempts=1)
    return job_id


def trials_done(database: Database, job_id: str) -> int:
    with database.reading() as session:
        return jobs.get(session, job_id).trials_done


@pytest.mark.smoke
def test_concurrent_threads_lose_no_update(database: Database) -> None:
    job_id = running_job(database)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: add_one(database, job_id), range(400)))
    assert trials_done(database, job_id) == 400


def test_concurrent_processes_lose_no_update(database: Database) -> None:
    job_id = running_job(database)
    command = [
        sys.executable,
        "-m",
        "tests.support.storage.counting",
        database.url.render_as_string(hide_password=False),
        job_id,
        "100",
    ]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert trials_done(database, job_id) == 400


@pytest.mark.smoke
def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    def fail() -> None:
        with database.transaction() as session:
            add_job(session)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.reading() as session:
        assert jobs.page(session, limit=10) == ([], None)


def test_a_reader_sees_one_moment_and_never_waits_for_a_writer(database: Database) -> None:
    with database.reading() as reader:
        assert jobs.page(reader, limit=10)[0] == []
        with database.transaction() as writer:
            add_job(writer)
            with database.reading() as other:
                assert jobs.page(other, limit=10)[0] == []
        assert jobs.page(reader, limit=10)[0] == []
    with database.reading() as reader:
        assert len(jobs.page(reader, limit=10)[0]) == 1


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(DBAPIError, match=r"read-?only"), database.reading() as session:
        add_model(session)


def test_a_writer_that_waits_too_long_is_told(sqlite_database: Database) -> None:
    impatient = Database(str(sqlite_database.url), timeout=0.1)
    with sqlite_database.transaction() as holder:
        add_model(holder)
        with pytest.raises(OperationalError, match="locked"), impatient.transaction() as other:
            add_model(other)
    with impatient.transaction() as holder:
        add_model(holder)
        with pytest.raises(exc.TimeoutError), impatient.transaction() as other:
            add_model(other)
    impatient.close()


def test_sqlite_keeps_commits_through_lost_power(sqlite_database: Database) -> None:
    with sqlite_database.transaction() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA synchronous")) == 2  # FULL
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
        assert session.scalar(text("PRAGMA busy_timeout")) == 30_000


def test_a_new_database_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        database = Database(f"sqlite:///{tmp_path / 'home' / 'db.sqlite3'}")
        with database.transaction() as session:
            session.execute(text("CREATE TABLE t (x INTEGER)"))
        made = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()}
        assert made == dict.fromkeys(("db.sqlite3", "db.sqlite3-wal", "db.sqlite3-shm"), 0o600)
        assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
        database.close()
    finally:
        os.umask(before)


def test_what_refers_to_nothing_is_refused(database: Database) -> None:
    with pytest.raises(IntegrityError), database.transaction() as session:
        session.add(JobLabelRow(job_id="j-nothing", name="a", value="b"))


def test_times_are_utc_and_never_naive(database: Database) -> None:
    berlin = datetime(2026, 7, 1, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    with database.transaction() as session:
        add_model(session, now=berlin)
    with database.reading() as session:
        at = session.scalar(select(ModelRow.created_at))
    assert at == berlin
    assert at.tzinfo is UTC
    with pytest.raises(StatementError, match="no time zone"), database.transaction() as session:
        add_model(session, "0" * 64, now=datetime(2026, 7, 1))  # noqa: DTZ001


def test_json_takes_no_number_that_postgresql_refuses(database: Database) -> None:
    job_id = running_job(database)
    with pytest.raises((StatementError, ValueError), match="JSON compliant"), database.transaction() as session:
        session.add(EventRow(job_id=job_id, kind="note", data={"seconds": float("nan")}, at=NOW))


def test_event_ids_are_never_used_again(database: Database) -> None:
    job_id = running_job(database)
    with database.transaction() as session:
        last = events.after(session, job_id, 0, 100)[-1].id
        session.execute(text("DELETE FROM job_events"))
    with database.transaction() as session:
        assert events.append(session, job_id, events.EventKind.NOTE, {}, now=NOW) > last


@pytest.mark.parametrize(
    "url", ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://localhost/x", "postgresql+nosuch://localhost/x"]
)
def test_a_url_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(errors.ConfigurationError) as refused:
        Database(url)
    assert refused.value.hint


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(errors.ConfigurationError) as refused:
        Database("mysql://user:secret@localhost/x")
    assert "secret" not in f"{refused.value} {refused.value.hint} {refused.value.details}"


def test_the_tables_can_be_made_in_postgresql() -> None:
    dialect = postgresql.dialect()
    for table in Base.metadata.sorted_tables:
        assert "JSONB" in str(CreateTable(table).compile(dialect=dialect)) or "JSON" not in repr(table.columns)
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect))
