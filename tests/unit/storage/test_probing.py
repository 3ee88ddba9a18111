"""Whether a database can be written to."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from storage.database import PROBE_SECONDS, Database


def test_a_locked_database_is_noticed_soon(database: Database) -> None:
    database.check_writable()
    with database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = version_num"))
        started = time.monotonic()
        with pytest.raises(OperationalError):
            database.check_writable()
        assert time.monotonic() - started < PROBE_SECONDS + 5
    database.check_writable()
