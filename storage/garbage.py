"""Bytes that nothing names any more, and how they go without taking any that somebody is just putting.

Nothing goes that a row names, or that was put, or whose last row was deleted, within the grace time. Whoever adds a row
puts its bytes just before, which makes those there already count as put now: the store itself then keeps them.

Nothing goes by the word of a database that the store does not belong to, nor of one that never knew a model or an
artifact.
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
from storage.tables import ArtifactRow, ModelRow

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
    """Remove what no model and no artifact names; with ``dry_run`` only count it.

    With ``adopt`` the store is the database's from now on, whosever it was; together they tell what would go then.
    Raises BlobStoreUnavailable, ForeignBlobStore, and ConfigurationError for a database that never knew anything.
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
            # Somebody may take the store over meanwhile.
            ownership.check(database, blobs)
        if dry_run or _removed(database, blobs, blob.digest, before):
            count += 1
            size += blob.size_bytes
    return Collected(blobs=count, size_bytes=size)


def named(session: Session, digests: Collection[str], before: datetime | None = None) -> set[str]:
    """Those of the digests that a model or an artifact has; with ``before``, also one that was deleted since then."""
    found: set[str] = set()
    for row in (ModelRow, ArtifactRow):
        lives: ColumnElement[bool] = row.deleted_at.is_(None)
        counts = lives if before is None else or_(lives, row.deleted_at >= before)
        found.update(session.scalars(select(row.digest).where(row.digest.in_(digests), counts)))
    return found


def _check_database(database: Database) -> None:
    """Deleted models and artifacts count: their rows stay."""
    with database.reading() as session:
        for row in (ModelRow, ArtifactRow):
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
        # Whoever is naming the bytes just now is waited for.
        statements.lock_digest(session, digest)
        kept = named(session, [digest], before)
    return not kept and blobs.delete(digest, put_before=before)
