"""Imported records: schedules that jobs of their owner measure first, and what became of them.

No other query reads them, so what they claim counts as nothing: not as coverage, best latency, history or build.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from sqlalchemy import ColumnElement, and_, delete, func, select, update
from sqlalchemy.orm import Session

from domain.records import ImportedRecord, ImportState, RecordKey, RecordPlace
from storage import codec, statements
from storage.record_filters import RecordFilter, conditions
from storage.records import row_of
from storage.tables import ImportedRecordRow, RecordRow, workload_digest

_SCHEDULES_AT_ONCE = 500
_TRIED = (ImportState.MEASURED, ImportState.FAILED)


def add_unknown(session: Session, records: Sequence[ImportedRecord]) -> int:
    """Store the records whose schedule their owner has not imported and nobody has measured; returns their number."""
    by_place: dict[tuple[str, str, str], list[ImportedRecord]] = defaultdict(list)
    for record in records:
        by_place[record.key.target, record.key.device_key, record.key.toolchain].append(record)
    added = 0
    for here in by_place.values():
        for start in range(0, len(here), _SCHEDULES_AT_ONCE):
            added += _add(session, here[start : start + _SCHEDULES_AT_ONCE])
    return added


def _add(session: Session, records: Sequence[ImportedRecord]) -> int:
    """Add records of one place."""
    rows = [row_of(record) for record in records]
    measured = select(RecordRow.workload_digest, RecordRow.schedule_digest).where(
        RecordRow.workload_digest.in_(sorted({row["workload_digest"] for row in rows})),
        *(getattr(RecordRow, name) == value for name, value in records[0].key.place.items()),
        RecordRow.schedule_digest.in_(sorted({row["schedule_digest"] for row in rows})),
    )
    known = {tuple(found) for found in session.execute(measured)}
    new = [row for row in rows if (row["workload_digest"], row["schedule_digest"]) not in known]
    key = ("owner", "workload_digest", *records[0].key.place, "schedule_digest")
    return statements.add_missing(session, ImportedRecordRow, new, key=key) if new else 0


def candidates(
    session: Session,
    workload_keys: Iterable[str],
    *,
    owner: str,
    tuner: str,
    most: int,
    **place: Unpack[RecordPlace],
) -> dict[str, list[ImportedRecord]]:
    """Return at most ``most`` untried records of each workload, in the order of their claims; none of failures."""
    found: dict[str, list[ImportedRecord]] = {}
    for workload_key in workload_keys:
        key = RecordKey(workload_key=workload_key, **place)
        wanted = (*_of(key, owner, tuner), ImportedRecordRow.state == ImportState.UNTRIED)
        query = select(ImportedRecordRow).where(*wanted, ImportedRecordRow.latency.is_not(None))
        query = query.order_by(ImportedRecordRow.latency, ImportedRecordRow.id).limit(most)
        if rows := session.scalars(query).all():
            found[workload_key] = [from_row(row) for row in rows]
    return found


def tried_by(session: Session, job_id: str, key: RecordKey, *, owner: str, tuner: str) -> int:
    """Count the trials that the job has spent on imported records of a key."""
    wanted = (*_of(key, owner, tuner), ImportedRecordRow.state.in_(_TRIED), ImportedRecordRow.job_id == job_id)
    return session.scalar(select(func.count()).where(*wanted)) or 0


def settle(
    session: Session, record_id: int, state: ImportState, *, owner: str, job_id: str, message: str | None = None
) -> bool:
    """Store what became of an untried record of the owner; returns whether it was one."""
    untried = and_(
        ImportedRecordRow.id == record_id,
        ImportedRecordRow.owner == owner,
        ImportedRecordRow.state == ImportState.UNTRIED,
    )
    values = {"state": state, "message": message, "job_id": job_id}
    return statements.changed(session, update(ImportedRecordRow).where(untried).values(**values)) == 1


def invalidate(session: Session, wanted: RecordFilter) -> int:
    """Withdraw records, so that no job tries or uses them, nor a later import of the same schedules by this owner;
    returns their number. Records that a worker has measured stay."""
    valid = and_(*conditions(ImportedRecordRow, wanted), ImportedRecordRow.state == ImportState.UNTRIED)
    return statements.changed(session, update(ImportedRecordRow).where(valid).values(state=ImportState.INVALIDATED))


def remove(session: Session, wanted: RecordFilter) -> int:
    """Delete records; returns their number. Records that a worker has measured stay."""
    return statements.changed(session, delete(ImportedRecordRow).where(*conditions(ImportedRecordRow, wanted)))


@dataclass(frozen=True, kw_only=True)
class ImportSummary:
    """Imported records of one owner at one place."""

    owner: str
    tuner: str
    target: str
    device_key: str
    toolchain: str
    states: Mapping[ImportState, int]


def summaries(session: Session, *, owner: str | None) -> list[ImportSummary]:
    """Count the records of an owner, or of all owners, by place and state."""
    row = ImportedRecordRow
    place = (row.owner, row.tuner, row.target, row.device_key, row.toolchain)
    query = select(*place, row.state, func.count()).group_by(*place, row.state).order_by(*place, row.state)
    if owner is not None:
        query = query.where(row.owner == owner)
    states: dict[tuple[str, ...], dict[ImportState, int]] = defaultdict(dict)
    for *where, state, number in session.execute(query):
        states[tuple(where)][ImportState(state)] = number
    names = ("owner", "tuner", "target", "device_key", "toolchain")
    return [ImportSummary(**dict(zip(names, where, strict=True)), states=found) for where, found in states.items()]


def _of(key: RecordKey, owner: str, tuner: str) -> tuple[ColumnElement[bool], ...]:
    return (
        ImportedRecordRow.owner == owner,
        ImportedRecordRow.workload_digest == workload_digest(key.workload_key),
        *(getattr(ImportedRecordRow, name) == value for name, value in key.place.items()),
        ImportedRecordRow.tuner == tuner,
    )


def from_row(row: ImportedRecordRow) -> ImportedRecord:
    return codec.from_row(ImportedRecord, row, key=codec.from_row(RecordKey, row))
