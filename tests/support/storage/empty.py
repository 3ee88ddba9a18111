"""Empty databases of SQLite, copied: migrating takes longer than most tests."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from storage.database import Database, migrate


def put_empty_database(home: Path) -> str:
    """Into a home where it is looked for; returns its URL."""
    file = home / "db.sqlite3"
    file.write_bytes(_bytes())
    return f"sqlite:///{file}"


@functools.cache
def _bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "db.sqlite3"
        database = Database(f"sqlite:///{file}")
        migrate(database)
        database.close()
        return file.read_bytes()
