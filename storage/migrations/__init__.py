"""The schema's history. Run by ``storage.database.migrate``, in one transaction, from any folder.

A new revision: change ``storage/tables.py``, run ``python -m storage.migrations "What changes"``, read what it wrote,
and save a database of it with ``python -m tests.support.storage.saving``.
"""
