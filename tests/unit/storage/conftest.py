from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from domain.jobs import Lease
from tests.support.storage.factories import leased
from tests.support.storage.fixtures import (
    database,
    dialect,
    migrated_template,
    postgresql_database,
    postgresql_shared,
    session,
    sqlite_database,
    sqlite_shared,
    store,
)

__all__ = [
    "database",
    "dialect",
    "migrated_template",
    "postgresql_database",
    "postgresql_shared",
    "session",
    "sqlite_database",
    "sqlite_shared",
    "store",
]


@pytest.fixture
def held(session: Session) -> tuple[str, Lease]:
    """A job that is claimed, and the lease."""
    return leased(session)
