"""Data sets. Each belongs to one owner; owners of equal files have a row each, and share the bytes."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from domain import errors, ids
from domain.data_sets import DataFacts, DataSet
from domain.digests import BlobDigest
from domain.jobs import FINAL_STATES
from domain.tokens import Principal
from storage import codec, owners, paging, statements
from storage.tables import DataSetRow, JobRow

_NAMED = 20
"""Maximum number of jobs that an error lists."""


def find(session: Session, owner: str, digest: BlobDigest) -> DataSet | None:
    """Return the owner's data set with these bytes."""
    wanted = select(DataSetRow).where(DataSetRow.owner == owner, DataSetRow.digest == digest)
    row = session.scalar(wanted.where(DataSetRow.deleted_at.is_(None)).limit(1))
    return None if row is None else _data_set(row)


def add(
    session: Session, *, digest: BlobDigest, name: str, owner: str, size_bytes: int, facts: DataFacts, now: datetime
) -> DataSet:
    """Raises DataSetNameTaken."""
    statements.lock_digest(session, digest)
    made = DataSet(
        id=ids.data_set(now), digest=digest, name=name, owner=owner, size_bytes=size_bytes, facts=facts, created_at=now
    )
    try:
        with session.begin_nested():
            session.add(DataSetRow(**codec.to_row(made, without=["facts"]), facts=codec.dump(facts)))
    except IntegrityError:
        raise errors.DataSetNameTaken(f"you have another data set named {name[:80]!r}") from None
    return made


def get(session: Session, id_or_name: str, principal: Principal, *, keep: bool = False) -> DataSet:
    """Return a data set by its id, or one of the principal's by its name.

    ``keep`` prevents its deletion until the transaction ends. Raises DataSetNotFound, and DataSetDeleted for an id.
    """
    mine = (DataSetRow.owner == principal.owner) & (DataSetRow.name == id_or_name) & DataSetRow.deleted_at.is_(None)
    query = select(DataSetRow).where((DataSetRow.id == id_or_name) | mine)
    found = session.scalar(query.with_for_update(read=True) if keep else query)
    if found is None or not (principal.sees_all or found.owner == principal.owner):
        raise errors.DataSetNotFound(f"there is no data set {id_or_name[:80]!r}")
    return _living(found)


def of_job(session: Session, data_set_id: str) -> DataSet:
    """Return the data set of a job, whoever owns it. Raises DataSetNotFound and DataSetDeleted."""
    found = session.get(DataSetRow, data_set_id)
    if found is None:
        raise errors.DataSetNotFound(f"there is no data set {data_set_id[:80]!r}")
    return _living(found)


def page(
    session: Session, principal: Principal, *, limit: int, page_token: str | None = None
) -> tuple[list[DataSet], str | None]:
    """Return a page of the data sets that the principal sees, newest first. Raises InvalidPageToken."""
    query = select(DataSetRow).where(DataSetRow.deleted_at.is_(None))
    owner = owners.visible(principal)
    if owner is not None:
        query = query.where(DataSetRow.owner == owner)
    return paging.page(session, query, DataSetRow, _data_set, limit=limit, page_token=page_token)


def delete(session: Session, data_set: DataSet, *, now: datetime) -> None:
    """Delete a data set; its bytes are removed later. Raises DataSetInUse."""
    # A job that is being created keeps the row until it can be seen below.
    session.execute(select(DataSetRow.id).where(DataSetRow.id == data_set.id).with_for_update())
    unfinished = select(JobRow.id).where(
        JobRow.state.not_in(FINAL_STATES),
        JobRow.part_of.is_(None),
        JobRow.request["data"].as_string() == data_set.id,
    )
    jobs = list(session.scalars(unfinished.order_by(JobRow.created_at).limit(_NAMED)))
    if jobs:
        raise errors.DataSetInUse(f"data set {data_set.id} has unfinished jobs", details={"jobs": jobs})
    gone = update(DataSetRow).where(DataSetRow.id == data_set.id, DataSetRow.deleted_at.is_(None))
    statements.changed(session, gone.values(deleted_at=now))


def _living(row: DataSetRow) -> DataSet:
    if row.deleted_at is not None:
        raise errors.DataSetDeleted(f"data set {row.id} was deleted on {row.deleted_at:%Y-%m-%d}")
    return _data_set(row)


def _data_set(row: DataSetRow) -> DataSet:
    return codec.from_row(DataSet, row)
