"""Migrations of the schema, run by ``storage.database.migrate`` in one transaction.

To add a revision, change ``storage/tables.py``, run ``python -m storage.migrations "What changes"``, check the result,
and save a database of it with ``python -m tests.support.storage.saving``.
"""
