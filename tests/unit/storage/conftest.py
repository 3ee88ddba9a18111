from tests.support.storage.fixtures import (
    database,
    migrated_file,
    migrated_template,
    postgresql_database,
    session,
    sqlite_database,
    store,
)

__all__ = [
    "database",
    "migrated_file",
    "migrated_template",
    "postgresql_database",
    "session",
    "sqlite_database",
    "store",
]
