from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from storage.database import Database, migrate


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("database") / "empty.sqlite3"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture
def database(migrated_file: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copy(migrated_file, tmp_path / "db.sqlite3")
    database = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    yield database
    database.close()


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.transaction() as session:
        yield session
