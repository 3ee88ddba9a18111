"""A database for each test: SQLite, or a schema of the PostgreSQL that ``TUNESMITH_TEST_DATABASE_URL`` names.

``sqlite_database`` is for what only SQLite has to promise.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateSchema, DropSchema

from storage.database import Database, migrate

POSTGRESQL_URL = os.environ.get("TUNESMITH_TEST_DATABASE_URL")


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


@pytest.fixture
def postgresql_database() -> Iterator[Database]:
    assert POSTGRESQL_URL
    server = create_engine(POSTGRESQL_URL)
    schema = f"test_{secrets.token_hex(6)}"
    with server.begin() as connection:
        connection.execute(CreateSchema(schema))
    url = make_url(POSTGRESQL_URL).update_query_dict({"options": f"-csearch_path={schema}"})
    database = Database(url.render_as_string(hide_password=False))
    migrate(database)
    yield database
    database.close()
    with server.begin() as connection:
        connection.execute(DropSchema(schema, cascade=True))
    server.dispose()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    chosen: Database = request.getfixturevalue("postgresql_database" if POSTGRESQL_URL else "sqlite_database")
    return chosen


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.transaction() as session:
        yield session
