"""A database that is damaged, or a home that cannot be: one line, a code and a hint from whatever is started there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from storage.blobs.local import LocalBlobStore
from storage.database import Database
from tests.support.storage.empty import put_empty_database
from tests.support.tunesmith.commands import run

COMMANDS = {
    "serve": ("serve", "--port", "0"),
    "worker": ("worker",),
    "migrate": ("migrate",),
    "gc": ("gc",),
    "backup": ("backup", "backup.tar"),
}
DOCTOR = ("doctor", "database", "blobs", "workers")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = os.umask(0o022)
    home = tmp_path / "home"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNESMITH_HOME", str(home))
    monkeypatch.setenv("TUNESMITH_BROKER_URL", "redis://127.0.0.1:1/0")
    for name in ("TUNESMITH_DATABASE_URL", "TUNESMITH_BLOB_URL"):
        monkeypatch.delenv(name, raising=False)
    yield home
    os.umask(before)


def no_database(home: Path) -> None:
    home.mkdir()
    (home / "db.sqlite3").write_text("what somebody wrote over it, longer than SQLite's header\n" * 9)


def torn_database(home: Path) -> None:
    home.mkdir()
    put_empty_database(home)
    with (home / "db.sqlite3").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 200)


def torn_tables(home: Path) -> None:
    """The rest of the database is right, so that only who asks these finds it out."""
    home.mkdir()
    database = Database(put_empty_database(home))
    with database.reading() as session:
        page_bytes = session.scalar(text("PRAGMA page_size"))
        wanted = "SELECT rootpage FROM sqlite_master WHERE tbl_name IN ('workers', 'models')"
        pages = list(session.scalars(text(wanted)))
    database.close()
    with (home / "db.sqlite3").open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * page_bytes)
            file.write(b"\xff" * page_bytes)


def no_table(home: Path) -> None:
    home.mkdir()
    database = Database(put_empty_database(home))
    with database.transaction() as session:
        session.execute(text("DROP TABLE workers"))
    database.close()


def a_file(home: Path) -> None:
    home.write_text("no folder")


def below_a_file(home: Path) -> None:
    home.parent.chmod(0o700)
    (home.parent / "file").write_text("no folder")
    home.symlink_to(home.parent / "file" / "home")


@pytest.mark.parametrize(
    ("command", "spoil"),
    [(command, spoil) for spoil in (no_database, torn_database) for command in COMMANDS]
    + [(command, torn_tables) for command in COMMANDS]
    + [(command, no_table) for command in ("serve", "worker", "migrate")],
)
def test_a_damaged_database_is_told(
    home: Path, capsys: pytest.CaptureFixture[str], command: str, spoil: Callable[[Path], None]
) -> None:
    spoil(home)
    LocalBlobStore(home / "blobs").put([b"bytes"])
    status, _, told = run(capsys, *COMMANDS[command])
    said, hint = told.strip().splitlines()[-2:]  # before them the log of a worker
    assert status == 3
    assert said.startswith("error[database_damaged]: the database ")
    assert "tunesmith restore" in hint
    assert not (home.parent / "backup.tar").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("spoil", [a_file, below_a_file])
def test_a_home_that_cannot_be_is_told(
    home: Path, capsys: pytest.CaptureFixture[str], command: str, spoil: Callable[[Path], None]
) -> None:
    spoil(home)
    status, _, told = run(capsys, *COMMANDS[command])
    said, hint = told.strip().splitlines()
    assert status == 3
    assert said.startswith("error[configuration_error]: ")
    assert str(home) in said
    assert hint.startswith("hint: ")
    assert "TUNESMITH_HOME" in hint


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(no_database, "database_damaged"), (no_table, "database_damaged"), (a_file, "configuration_error")],
    ids=["damaged", "without a table", "file"],
)
def test_doctor_tells_of_them_beside_all_else(
    home: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], code: str
) -> None:
    spoil(home)
    status, out, told = run(capsys, *DOCTOR)
    assert (status, "error[doctor_failed]" in told) == (3, True)
    assert f"fail  database   [{code}] " in out
    assert f"fail  workers    [{code}] " in out
