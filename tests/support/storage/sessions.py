"""Whether a thread is in a transaction: then it must ask no network and no blob store, which may take long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from storage.blobs.local import LocalBlobStore
from storage.database import Database

_here = threading.local()


class WatchedDatabase(Database):
    """Knows which threads have a session of it."""

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        with _counted(), super().transaction() as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        with _counted(), super().reading() as session:
            yield session


class WatchedBlobStore(LocalBlobStore):
    """Refuses to be used within a session."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            check_outside(f"blobs.{name}")
        return super().__getattribute__(name)


def check_outside(what: str) -> None:
    """The main thread is a test's own, which may do as it likes. Raises AssertionError."""
    if threading.current_thread() is not threading.main_thread():
        assert getattr(_here, "sessions", 0) == 0, f"{what} within a transaction"


@contextmanager
def _counted() -> Iterator[None]:
    _here.sessions = getattr(_here, "sessions", 0) + 1
    try:
        yield
    finally:
        _here.sessions -= 1
