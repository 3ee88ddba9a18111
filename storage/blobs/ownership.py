"""Ownership of a blob store by one database; only its service removes blobs.

A marker in the store holds the database's identity. A database that uses a store without a marker, a new one or one of
an older release, claims it, unless the store has blobs of another database.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain import errors, ids
from domain.blobs import BlobStore
from storage import statements
from storage.database import Database
from storage.tables import WITH_BLOBS, IdentityRow

_LOOKED_AT = 500
_EVER = datetime.max.replace(tzinfo=UTC)
_ONLY = 1


def check(database: Database, blobs: BlobStore) -> None:
    """Check that the store belongs to this database, or is unowned and may. Raises ForeignBlobStore and
    BlobStoreUnavailable."""
    owner = blobs.owner()
    if owner is None:
        _check_known(database, blobs)
        return
    with database.reading() as session:
        own = identity(session)
    if owner != own:
        raise errors.ForeignBlobStore(
            f"the blob store belongs to database {owner}, not to {own or 'this new one'}: nothing was removed"
        )


def claim(database: Database, blobs: BlobStore, *, now: datetime) -> None:
    """Check the store, and claim an unowned one for this database."""
    if blobs.owner() is None:
        _check_known(database, blobs)
        with database.transaction() as session:
            own = own_identity(session, now=now)
        blobs.claim(own)
    check(database, blobs)


def take_over(database: Database, blobs: BlobStore, *, now: datetime) -> None:
    """Claim the store under a new identity, so that copies of this database do not own it any more."""
    with database.transaction() as session:
        own = renew_identity(session, now=now)
    blobs.hand_over(own)


def _check_known(database: Database, blobs: BlobStore) -> None:
    """Check that most blobs are known. Some may be unknown, such as failed uploads; if most are, they belong
    to another database."""
    some = [blob.digest for blob in itertools.islice(blobs.stored(put_before=_EVER), _LOOKED_AT)]
    with database.reading() as session:
        known = {
            digest for row in WITH_BLOBS for digest in session.scalars(select(row.digest).where(row.digest.in_(some)))
        }
    if 2 * len(known) < len(some):
        raise errors.ForeignBlobStore(
            f"the blob store has no owner, and this database knows only {len(known)} of {len(some)} blobs in it: "
            "nothing was removed"
        )


def identity(session: Session) -> str | None:
    """Return the identity of the database; None before the first call of ``own_identity``."""
    return session.scalar(select(IdentityRow.id).where(IdentityRow.number == _ONLY))


def own_identity(session: Session, *, now: datetime) -> str:
    """Return the identity of the database, creating it on the first call."""
    row = {"number": _ONLY, "id": ids.database(now), "made_at": now}
    statements.add_missing(session, IdentityRow, [row], key=["number"])
    return session.scalars(select(IdentityRow.id).where(IdentityRow.number == _ONLY)).one()


def renew_identity(session: Session, *, now: datetime) -> str:
    """Replace the identity of the database by one that its copies do not have."""
    row = {"number": _ONLY, "id": ids.database(now), "made_at": now}
    statements.put(session, IdentityRow, row, key=["number"])
    return str(row["id"])
