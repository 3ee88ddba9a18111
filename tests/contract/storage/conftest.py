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
