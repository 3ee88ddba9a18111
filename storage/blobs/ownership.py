"""Which database a store of blobs belongs to; only that one's service removes bytes of it.

The store says so itself, in a marker beside the blobs, which holds the database's identity. A database that comes to a
store without one, new or of an older release, claims it, unless the store keeps bytes of somebody else.
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
from storage.tables import ArtifactRow, IdentityRow, ModelRow

_LOOKED_AT = 500
_EVER = datetime.max.replace(tzinfo=UTC)
_ONLY = 1


def check(database: Database, blobs: BlobStore) -> None:
    """The store is this database's, or nobody's yet and could be. Raises ForeignBlobStore and BlobStoreUnavailable."""
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
    """The same, and a store that was nobody's is this database's from now on."""
    if blobs.owner() is None:
        _check_known(database, blobs)
        with database.transaction() as session:
            own = own_identity(session, now=now)
        blobs.claim(own)
    check(database, blobs)


def take_over(database: Database, blobs: BlobStore, *, now: datetime) -> None:
    """Under a new identity: the store is then no longer that of copies of this database, either."""
    with database.transaction() as session:
        own = renew_identity(session, now=now)
    blobs.hand_over(own)


def _check_known(database: Database, blobs: BlobStore) -> None:
    """Some bytes are of nobody, such as of uploads that failed; when most are, they are of somebody else."""
    some = [blob.digest for blob in itertools.islice(blobs.stored(put_before=_EVER), _LOOKED_AT)]
    with database.reading() as session:
        known = {
            digest
            for row in (ModelRow, ArtifactRow)
            for digest in session.scalars(select(row.digest).where(row.digest.in_(some)))
        }
    if 2 * len(known) < len(some):
        raise errors.ForeignBlobStore(
            f"the blob store has no owner, and this database knows only {len(known)} of {len(some)} blobs in it: "
            "nothing was removed"
        )


def identity(session: Session) -> str | None:
    """None before anybody asked for it with ``own``."""
    return session.scalar(select(IdentityRow.id).where(IdentityRow.number == _ONLY))


def own_identity(session: Session, *, now: datetime) -> str:
    """Made the first time; of several who ask at once, one makes it."""
    row = {"number": _ONLY, "id": ids.database(now), "made_at": now}
    statements.add_missing(session, IdentityRow, [row], key=["number"])
    return session.scalars(select(IdentityRow.id).where(IdentityRow.number == _ONLY)).one()


def renew_identity(session: Session, *, now: datetime) -> str:
    """Another one than copies of this database have."""
    row = {"number": _ONLY, "id": ids.database(now), "made_at": now}
    statements.put(session, IdentityRow, row, key=["number"])
    return str(row["id"])
