"""What nobody needs any more: answers to requests of last week, sessions that ended, uploads that were cut off."""

from __future__ import annotations

from datetime import datetime

from domain.blobs import BlobStore
from storage import browser_sessions, idempotency
from storage.database import Database

SECONDS = 3600.0
"""Between two rounds; nothing depends on when they are."""
_CUT_OFF_SECONDS = 24 * 3600.0


def tidy(database: Database, blobs: BlobStore, *, now: datetime) -> None:
    """Several workers doing it at once do no harm."""
    with database.transaction() as session:
        idempotency.forget(session, made_before=now - idempotency.KEPT)
        browser_sessions.forget_expired(session, now=now)
    blobs.sweep(older_than=_CUT_OFF_SECONDS)
