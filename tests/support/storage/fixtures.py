"""A database for each test: one on SQLite, and one on PostgreSQL where that is installed. And stores of each kind.

``sqlite_database`` is for what only SQLite has to promise, ``postgresql_database`` for the other.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.orm import Session
from sqlalchemy.util import LRUCache

from domain.blobs import BlobStore
from storage import database as storage_database
from storage.blobs import LocalBlobStore
from storage.database import Database, migrate
from tests.support.servers.postgresql import PostgreSQL
from tests.support.storage.buckets import Bucket
from tests.support.storage.memory_blobs import MemoryBlobStore


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost power takes the test's database with it anyway; that commits are durable is a contract test's matter."""
    monkeypatch.setattr(storage_database, "_SYNCHRONOUS", "OFF")


@pytest.fixture(autouse=True, scope="session")
def statements_compiled_once() -> Iterator[None]:
    """Once for all databases of SQLite, each of which would do it again: that takes most of a short test's time."""
    make, kept = storage_database._sqlite, LRUCache[Any, Any](5000)

    def sharing(*arguments: Any, **options: Any) -> Engine:
        engine = make(*arguments, **options)
        engine._compiled_cache = kept
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_database, "_sqlite", sharing)
        # What is kept is kept for a dialect.
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda self, other: type(self) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda self: hash(type(self)))
        yield


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("database") / "empty.sqlite3"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture
def sqlite_database(migrated_file: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copy(migrated_file, tmp_path / "db.sqlite3")
    database = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    yield database
    database.close()


@pytest.fixture(scope="session")
def migrated_template(postgresql_server: PostgreSQL) -> str:
    """Name of a database to be copied, which is quicker than to migrate another one."""
    name = postgresql_server.create_database()
    database = Database(postgresql_server.url(name))
    migrate(database)
    database.close()
    return name


@pytest.fixture
def postgresql_database(postgresql_server: PostgreSQL, migrated_template: str) -> Iterator[Database]:
    name = f"copy_{migrated_template}"
    postgresql_server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{migrated_template}"')
    database = Database(postgresql_server.url(name))
    yield database
    database.close()
    postgresql_server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.contract)])
def database(request: pytest.FixtureRequest) -> Database:
    chosen: Database = request.getfixturevalue(f"{request.param}_database")
    return chosen


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.contract)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobStore(tmp_path)
    if request.param == "local":
        return LocalBlobStore(tmp_path / "blobs")
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket.store(tmp_path)


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.transaction() as session:
        yield session
