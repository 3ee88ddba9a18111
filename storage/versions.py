"""What SQLite tells in microseconds, without blocking: whether anything was committed, and single rows."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Version = tuple[int, int]
"""Of which connection, as numbers of two cannot be compared, and the number."""


class SqliteVersion:
    """``PRAGMA data_version`` on a connection of its own, which commits nothing: SQLite finds the number in shared
    memory, in microseconds, and it changes with each commit of any process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._connections = 0

    def now(self) -> Version | None:
        """None where it cannot be told just now."""
        found = self.row("PRAGMA data_version")
        return (self._connections, int(found[0])) if found else None

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first one of a statement that an index answers; None where there is none, or none just now."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                    self._connections += 1
                row: tuple[Any, ...] | None = self._connection.execute(statement, parameters).fetchone()
            except sqlite3.Error:
                self._drop()
                return None
        return row

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _connect(self) -> sqlite3.Connection:
        uri = Path(self._path).absolute().as_uri() + "?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=0.0, check_same_thread=False, isolation_level=None)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
