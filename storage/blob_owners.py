"""Which database a store of blobs belongs to; only that one's service removes bytes of it.

The store says so itself, in a marker beside the blobs. A database that comes to a store without one, new or of an
older release, claims it, unless the store keeps bytes of somebody else.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain import errors
from domain.blobs import BlobStore
from storage import identity
from storage.database import Database
from storage.tables import ArtifactRow, ModelRow

_LOOKED_AT = 500
_EVER = datetime.max.replace(tzinfo=UTC)


def check(database: Database, blobs: BlobStore) -> None:
    """The store is this database's, or nobody's yet and could be. Raises ForeignBlobStore and BlobStoreUnavailable."""
    owner = blobs.owner()
    if owner is None:
        _check_known(database, blobs)
        return
    with database.reading() as session:
        own = identity.known(session)
    if owner != own:
        raise errors.ForeignBlobStore(
            f"the store of models and artifacts is the one of database {owner}, and this is {own or 'a new one'}: "
            "nothing is removed"
        )


def claim(database: Database, blobs: BlobStore, *, now: datetime) -> None:
    """The same, and a store that was nobody's is this database's from now on."""
    if blobs.owner() is None:
        _check_known(database, blobs)
        with database.transaction() as session:
            own = identity.own(session, now=now)
        blobs.claim(own)
    check(database, blobs)


def take_over(database: Database, blobs: BlobStore, *, now: datetime) -> None:
    """Under a new identity: the store is then no longer that of copies of this database, either."""
    with database.transaction() as session:
        own = identity.renew(session, now=now)
    blobs.hand_over(own)


def is_of_another(session: Session, blobs: BlobStore) -> bool:
    owner = blobs.owner()
    return owner is not None and owner != identity.known(session)


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
            f"the store belongs to no database yet, and of {len(some)} blobs there this one knows {len(known)}: "
            "nothing is removed"
        )
