"""A database of which a part is damaged or gone, on both kinds where both can be."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from domain import errors
from storage import integrity
from storage.database import Database, migrate

LONG = 600.0


def raised(database: Database, statement: str) -> Exception:
    with pytest.raises(DatabaseError) as caught, database.transaction() as session:
        session.execute(text(statement))
    return caught.value


def torn(path: Path, table: str) -> None:
    """Overwrite the first page of a table."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff" * page_bytes)


def test_a_table_that_is_gone_is_damage(database: Database) -> None:
    assert integrity.is_damaged(raised(database, "SELECT * FROM no_such_thing"))


def test_a_column_that_is_gone_is_damage(database: Database) -> None:
    for statement in ("SELECT no_such_thing FROM jobs", "INSERT INTO jobs (no_such_thing) VALUES (1)"):
        assert integrity.is_damaged(raised(database, statement)), statement


def test_our_own_mistakes_are_none(database: Database) -> None:
    for statement in ("SELEC", "INSERT INTO jobs (id) VALUES (NULL)"):
        assert not integrity.is_damaged(raised(database, statement)), statement


@pytest.mark.parametrize("state", ["XX001", "XX002"])
def test_corruption_that_postgresql_tells_of(postgresql_database: Database, state: str) -> None:
    found = raised(postgresql_database, f"DO $$ BEGIN RAISE EXCEPTION 'bad page' USING ERRCODE = '{state}'; END $$")
    assert integrity.is_damaged(found)


@pytest.mark.parametrize(
    "error", [OperationalError("SELECT", {}, Exception("away")), IntegrityError("", {}, Exception())]
)
def test_what_is_no_damage(error: Exception) -> None:
    assert not integrity.is_damaged(error)


@pytest.mark.parametrize("table", ["records", "alembic_version"])
def test_a_start_tells_of_a_table_that_is_gone(database: Database, table: str) -> None:
    with database.transaction() as session:
        cascade = "" if session.get_bind().dialect.name == "sqlite" else " CASCADE"
        session.execute(text(f"DROP TABLE {table}{cascade}"))
    with pytest.raises(errors.DatabaseDamaged, match="cannot be used"):
        migrate(database)


def test_a_start_tells_of_a_table_that_is_torn(sqlite_database: Database) -> None:
    path = Path(str(sqlite_database.url.database))
    torn(path, "job_events")
    other = Database(f"sqlite:///{path}")
    try:
        with pytest.raises(errors.DatabaseDamaged, match="malformed"):
            migrate(other)
    finally:
        other.close()


def test_pages_that_no_start_reads_are_looked_through(sqlite_database: Database) -> None:
    path = Path(str(sqlite_database.url.database))
    integrity.quick_check(sqlite_database.url, seconds=LONG)
    with sqlite3.connect(path) as connection:
        (index,) = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql > ''").fetchone()
    connection.close()
    torn(path, index)
    with pytest.raises(errors.DatabaseDamaged):
        integrity.quick_check(sqlite_database.url, seconds=LONG)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("what somebody wrote over it, longer than SQLite's header\n" * 9)
    with pytest.raises(errors.DatabaseDamaged, match="not a database"):
        integrity.quick_check(make_url(f"sqlite:///{tmp_path / 'db'}"), seconds=LONG)


def test_one_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(errors.DatabaseUnavailable):
        integrity.quick_check(make_url(f"sqlite:///{tmp_path / 'db'}"), seconds=LONG)


def test_looking_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong behind where it was interrupted."""
    path = tmp_path / "db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER, text TEXT)")
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
            " INSERT INTO numbers SELECT i, hex(randomblob(20)) FROM n"
        )
        connection.execute("CREATE INDEX of_text ON numbers (text)")
    connection.close()
    torn(path, "of_text")

    class AtOnce(threading.Timer):
        """Interrupts before the statement runs, and again and again until it has ended."""

        def start(self) -> None:
            self.function()
            super().start()

        def run(self) -> None:
            while not self.finished.wait(0.001):
                self.function()

    monkeypatch.setattr(threading, "Timer", AtOnce)
    integrity.quick_check(make_url(f"sqlite:///{path}"), seconds=LONG)


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://nobody@127.0.0.1:1/none", "sqlite:///file:memory?mode=memory&uri=true"]
)
def test_others_are_left_alone(url: str) -> None:
    integrity.quick_check(make_url(url), seconds=LONG)
