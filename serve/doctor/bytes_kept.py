"""Check of the blob store: put, read and delete a probe."""

from __future__ import annotations

import secrets
import time

from sqlalchemy.exc import SQLAlchemyError

from domain import errors
from domain.blobs import BlobStore
from serve.doctor import findings
from serve.doctor.findings import Finding
from storage.blobs import ownership
from storage.database import Database

CHECK = "blobs"
_PROBE_BYTES = 64 * 1024


def check(store: BlobStore, *, where: str) -> list[Finding]:
    data = secrets.token_bytes(_PROBE_BYTES)
    started = time.monotonic()
    try:
        store.check()
        blob = store.put([data])
        with store.open(blob.digest) as stream:
            came_back = stream.read()
        if not store.delete(blob.digest) or came_back != data:
            message = f"{where} does not return what was written"
            hint = "Check that nothing else writes to it and that its address leads to one store."
            return [findings.fail(CHECK, "blobs_lost", message, hint)]
    except errors.TunesmithError as error:
        return [findings.failed(CHECK, error)]
    took = time.monotonic() - started
    return [
        findings.ok(CHECK, f"{where} stores and returns a probe of {_PROBE_BYTES // 1024} KiB ({took * 1e3:.0f} ms)")
    ]


def owner(database: Database, store: BlobStore, *, where: str) -> list[Finding]:
    """Skip a database that does not respond or has no tables; its own check reports that."""
    try:
        ownership.check(database, store)
    except SQLAlchemyError:
        return []
    except errors.TunesmithError as error:
        return [findings.failed(CHECK, error)]
    return [findings.ok(CHECK, f"{where} belongs to this database, or has no owner yet")]
