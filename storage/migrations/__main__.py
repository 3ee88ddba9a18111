"""Write a new revision from the difference between the last one and the tables."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from storage.database import Database, migrate
from storage.migrations import running


def main(message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'empty.sqlite3'}")
        migrate(database)
        with database.migrating() as connection:
            running.write_revision(connection, message)
        database.close()


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
