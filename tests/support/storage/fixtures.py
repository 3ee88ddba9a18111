"""SQLite and, where that is installed, PostgreSQL: a session for each test, or a whole database. Stores of each kind.

``sqlite_database`` is for what only SQLite has to promise, ``postgresql_database`` for the other.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from domain.blobs import BlobStore
from storage.blobs.local import LocalBlobStore
from storage.database import Database, migrate
from tests.support.servers.postgresql import PostgreSQL
from tests.support.storage.buckets import Bucket
from tests.support.storage.empty import put_empty_database


@pytest.fixture
def sqlite_database(tmp_path: Path) -> Iterator[Database]:
    database = Database(put_empty_database(tmp_path))
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
    with _copy(postgresql_server, migrated_template) as database:
        yield database


@contextlib.contextmanager
def _copy(server: PostgreSQL, template: str) -> Iterator[Database]:
    name = f"copy_{uuid.uuid4().hex[:16]}"
    server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    database = Database(server.url(name))
    yield database
    database.close()
    server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def sqlite_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = Database(put_empty_database(tmp_path_factory.mktemp("database")))
    yield database
    database.close()


@pytest.fixture(scope="session")
def postgresql_shared(postgresql_server: PostgreSQL, migrated_template: str) -> Iterator[Database]:
    with _copy(postgresql_server, migrated_template) as database:
        yield database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.contract)])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(request: pytest.FixtureRequest, dialect: str) -> Database:
    """The test's own, for what commits or takes several transactions."""
    chosen: Database = request.getfixturevalue(f"{dialect}_database")
    return chosen


@pytest.fixture
def session(request: pytest.FixtureRequest, dialect: str) -> Iterator[Session]:
    """Of an empty database. Nothing stays of it: numbers that the database gives out may begin anywhere."""
    shared: Database = request.getfixturevalue(f"{dialect}_shared")
    with contextlib.suppress(_Undone), shared.transaction() as session:
        yield session
        session.flush()
        raise _Undone


class _Undone(Exception):
    pass


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.contract)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "local":
        return LocalBlobStore(tmp_path / "blobs")
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket.store(tmp_path)
