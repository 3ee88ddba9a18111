"""What makes many short tests with SQLite quicker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from storage import database as storage_database


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
