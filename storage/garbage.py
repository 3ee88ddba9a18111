"""Garbage collection of blobs, safe with concurrent uploads.

A blob is kept if a row refers to it, or if it was put, or its last row deleted, within the grace period. Before a row
is added, its blob is put again, which renews the time of an existing blob, so that the store keeps it. Nothing is
removed on behalf of a database that does not own the store, or that never contained anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from domain import errors
from domain.blobs import Blob, BlobStore
from domain.digests import BlobDigest
from storage import statements
from storage.blobs import ownership
from storage.database import Database
from storage.tables import WITH_BLOBS

_ASKED_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class Collected:
    blobs: int = 0
    size_bytes: int = 0


def collect(
    database: Database,
    blobs: BlobStore,
    *,
    now: datetime,
    grace: timedelta,
    dry_run: bool = False,
    adopt: bool = False,
) -> Collected:
    """Remove blobs that no model, artifact or data set refers to; with ``dry_run``, only count them.

    With ``adopt``, the database takes over the store first; with both, blobs are counted as if it had. Raises
    BlobStoreUnavailable, ForeignBlobStore, and ConfigurationError for a database that never contained anything.
    """
    before, count, size = now - grace, 0, 0
    found = blobs.stored(put_before=before)
    first = next(found, None)
    if first is not None:
        _check_database(database)
    if not adopt:
        if dry_run:
            ownership.check(database, blobs)
        else:
            ownership.claim(database, blobs, now=now)
    elif not dry_run:
        ownership.take_over(database, blobs, now=now)
    if first is None:
        return Collected()
    for number, blob in enumerate(_unnamed(database, itertools.chain([first], found), before), start=1):
        if not dry_run and number % _ASKED_AT_ONCE == 0:
            # Another database may take over the store in the meantime.
            ownership.check(database, blobs)
        if dry_run or _removed(database, blobs, blob.digest, before):
            count += 1
            size += blob.size_bytes
    return Collected(blobs=count, size_bytes=size)


def named(session: Session, digests: Collection[str], before: datetime | None = None) -> set[str]:
    """Return those of the digests that an object refers to; with ``before``, also those deleted
    since then."""
    found: set[str] = set()
    for row in WITH_BLOBS:
        lives: ColumnElement[bool] = row.deleted_at.is_(None)
        counts = lives if before is None else or_(lives, row.deleted_at >= before)
        found.update(session.scalars(select(row.digest).where(row.digest.in_(digests), counts)))
    return found


def _check_database(database: Database) -> None:
    """Deleted objects count, as their rows are kept."""
    with database.reading() as session:
        for row in WITH_BLOBS:
            if session.scalar(select(row.digest).limit(1)) is not None:
                return
    raise errors.ConfigurationError(
        "the blob store has files, but the database never had a model or artifact: nothing was removed",
        hint="TUNESMITH_DATABASE_URL and TUNESMITH_BLOB_URL, or TUNESMITH_HOME, must belong to the same service.",
    )


def _unnamed(database: Database, found: Iterator[Blob], before: datetime) -> Iterator[Blob]:
    for some in iter(lambda: list(itertools.islice(found, _ASKED_AT_ONCE)), []):
        with database.reading() as session:
            kept = named(session, [blob.digest for blob in some], before)
        yield from (blob for blob in some if blob.digest not in kept)


def _removed(database: Database, blobs: BlobStore, digest: BlobDigest, before: datetime) -> bool:
    with database.transaction() as session:
        # Wait for transactions that are adding a reference to these bytes.
        statements.lock_digest(session, digest)
        kept = named(session, [digest], before)
    return not kept and blobs.delete(digest, put_before=before)
