"""``backup``, ``restore`` and ``gc``, beside a home folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.blobs import ownership
from storage.blobs.local import LocalBlobStore
from storage.database import Database
from tests.support.storage.empty import put_empty_database
from tests.support.storage.factories import NOW, add_model
from tests.support.tunesmith.commands import parsed, run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("TUNESMITH_HOME", str(home))
    for name in ("TUNESMITH_DATABASE_URL", "TUNESMITH_BLOB_URL"):
        monkeypatch.delenv(name, raising=False)
    home.mkdir()
    put_empty_database(home)
    return home


def test_there_and_back(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup.tar"
    assert run(capsys, "backup", target) == (0, "backed up: the database and 0 blobs, 0 B\n", "")
    status, _, told = run(capsys, "backup", target)
    assert (status, "error[configuration_error]" in told) == (3, True)
    status, _, told = run(capsys, "restore", target)
    assert (status, "already exists" in told) == (3, True)
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "new"))
    assert parsed(capsys, "restore", target) == {"path": str(target), "blobs": 0, "bytes": 0, "missing": []}
    assert (tmp_path / "new" / "db.sqlite3").is_file()
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "paused"))
    assert parsed(capsys, "restore", "--paused", target)["paused"] == {"jobs": 0, "messages": 0}
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "told"))
    assert "canceled 0 jobs; dropped 0 webhook messages" in run(capsys, "restore", "--paused", target)[1]
    assert run(capsys, "restore", home)[0] == 3


def test_a_database_is_never_made_to_collect(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalBlobStore(home / "blobs")
    digest = store.put([b"of the service"]).digest
    os.utime(store.path(digest), (0, 0))
    status, _, told = run(capsys, "gc")
    assert (status, "never had a model" in told) == (3, True)
    (home / "behind.sqlite3").touch()
    for name, wrong in (("none.sqlite3", "database not found"), ("behind.sqlite3", "has revision none")):
        monkeypatch.setenv("TUNESMITH_DATABASE_URL", f"sqlite:///{home / name}")
        status, _, told = run(capsys, "gc")
        assert (status, wrong in told) == (3, True)
    assert not (home / "none.sqlite3").exists()
    assert store.exists(digest)


def test_bytes_without_a_name_go(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = LocalBlobStore(home / "blobs")
    database = Database(f"sqlite:///{home / 'db.sqlite3'}")
    with database.transaction() as session:
        add_model(session)
        store.claim(ownership.own_identity(session, now=NOW))
    database.close()
    digest = store.put([b"x" * 1500]).digest
    store.put([b"just put"])
    os.utime(store.path(digest), (0, 0))
    assert parsed(capsys, "gc", "--dry-run") == {"blobs": 1, "bytes": 1500, "dry_run": True}
    assert store.exists(digest)
    status, out, _ = run(capsys, "gc")
    assert (status, out.startswith("1 blobs removed, ")) == (0, True)
    assert not store.exists(digest)


def test_a_store_of_another_service_is_taken_over_when_that_is_wanted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalBlobStore(home / "blobs")
    store.claim("d-another")
    database = Database(f"sqlite:///{home / 'db.sqlite3'}")
    with database.transaction() as session:
        add_model(session)
    database.close()
    digest = store.put([b"x" * 1500]).digest
    os.utime(store.path(digest), (0, 0))
    for command in (["gc"], ["gc", "--dry-run"]):
        status, _, told = run(capsys, *command)
        assert (status, "error[blob_store_foreign]" in told, "tunesmith gc --adopt" in told) == (3, True, True)
    assert run(capsys, "doctor", "blobs")[0] == 3
    assert parsed(capsys, "gc", "--adopt", "--dry-run")["blobs"] == 1
    assert (store.owner(), store.exists(digest)) == ("d-another", True)
    assert parsed(capsys, "gc", "--adopt") == {"blobs": 1, "bytes": 1500, "dry_run": False}
    assert not store.exists(digest)
    assert parsed(capsys, "gc") == {"blobs": 0, "bytes": 0, "dry_run": False}
    assert run(capsys, "doctor", "blobs")[0] == 0


def test_postgresql_is_told_how(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_DATABASE_URL", "postgresql+psycopg://localhost/x")
    status, _, told = run(capsys, "backup", tmp_path / "backup.tar")
    assert (status, "pg_dump" in told) == (3, True)
