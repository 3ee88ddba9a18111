"""Queries of records by filters, and counts per workload.

Pages read a few records at a time. The counts are read from a covering index in its order, without sorting or reading
records: about 0.8 s per million records on one core. Frequent callers should cache the result.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from domain import errors
from domain.records import ImportedRecord, Provenance, Record
from storage import imports, records
from storage.database import Database
from storage.record_filters import AnyRecordRow, RecordFilter, conditions
from storage.tables import ImportedRecordRow, RecordRow, TuningTaskRow

_ROWS_AT_ONCE = 1000
_TABLES: dict[str, AnyRecordRow] = {"r": RecordRow, "i": ImportedRecordRow}
"""By the first letter of page tokens."""
_PROVENANCES = {"r": Provenance.MEASURED, "i": Provenance.IMPORTED}
_TOKEN = re.compile(r"[ri][0-9]{1,18}")
_IDS_AT_ONCE = 500


AnyRecord = Record | ImportedRecord


def page(
    session: Session, wanted: RecordFilter, *, limit: int, page_token: str | None = None
) -> tuple[list[AnyRecord], str | None]:
    """Return at most ``limit`` records, measured before imported ones and else oldest first, and the token of the next
    page, None on the last. Raises InvalidPageToken."""
    kinds = _kinds(wanted)
    kind, after = _parse(page_token) if page_token is not None else (kinds[0], 0)
    found: list[tuple[str, RecordRow | ImportedRecordRow]] = []
    for each in kinds[kinds.index(kind) :] if kind in kinds else ():
        query = _after(each, wanted, after if each == kind else 0).limit(limit + 1 - len(found))
        found += [(each, row) for row in session.scalars(query)]
        if len(found) > limit:
            break
    token = f"{found[limit - 1][0]}{found[limit - 1][1].id}" if len(found) > limit else None
    return [_from_row(row) for _, row in found[:limit]], token


def stream(database: Database, wanted: RecordFilter) -> Iterator[list[AnyRecord]]:
    """Yield all records in batches, each read in its own transaction, so that a slow reader blocks nobody.

    Records stored in the meantime may be included.
    """
    for kind in _kinds(wanted):
        after, is_last = 0, False
        while not is_last:
            with database.reading() as session:
                rows = session.scalars(_after(kind, wanted, after).limit(_ROWS_AT_ONCE)).all()
                found = [_from_row(row) for row in rows]
                after = rows[-1].id if rows else after
            if found:
                yield found
            is_last = len(found) < _ROWS_AT_ONCE


def _kinds(wanted: RecordFilter) -> list[str]:
    """Return the tables to read in order, as keys of ``_TABLES``."""
    return [kind for kind, provenance in _PROVENANCES.items() if wanted.provenance in (None, provenance)]


def _after(kind: str, wanted: RecordFilter, row_id: int) -> Select[Any]:
    row = _TABLES[kind]
    return select(row).where(row.id > row_id, *conditions(row, wanted)).order_by(row.id)


def _from_row(row: RecordRow | ImportedRecordRow) -> AnyRecord:
    return records.from_row(row) if isinstance(row, RecordRow) else imports.from_row(row)


def _parse(token: str) -> tuple[str, int]:
    if not _TOKEN.fullmatch(token):
        raise errors.InvalidPageToken("invalid page token")
    return token[0], int(token[1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFacts:
    """Descriptions of a workload from tuning tasks, as its key is not readable."""

    name: str
    description: str
    flop: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceKey:
    """Tuner, target, device and toolchain of records."""

    tuner: str
    target: str
    device_key: str
    toolchain: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadSummary:
    workload_key: str
    facts: TaskFacts | None
    """None without a tuning task."""
    place: PlaceKey
    """With the tuner of the workload's first record at any place, as keys differ between tuners."""
    trials: int
    failures: int
    best_latency: float | None
    """Seconds; None if every trial failed."""

    @property
    def title(self) -> str:
        return self.facts.description if self.facts else self.workload_key

    @property
    def gflops(self) -> float | None:
        """GFLOPS of the best record; None without one, or if the FLOPs are unknown."""
        return self.facts.flop / self.best_latency / 1e9 if self.facts and self.best_latency else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceSummary:
    place: PlaceKey
    workloads: int
    trials: int
    failures: int


def read(session: Session) -> list[WorkloadSummary]:
    """Return a summary of each workload at each place, most trials first."""
    identity = (RecordRow.workload_digest, RecordRow.target, RecordRow.device_key, RecordRow.toolchain)
    counts = (func.count(), func.count(RecordRow.latency), func.min(RecordRow.latency), func.min(RecordRow.id))
    groups = session.execute(select(*identity, *counts).group_by(*identity).order_by(*identity)).all()
    facts = _facts(session)
    names = _names(session, _first_of_each([(group[0], group[-1]) for group in groups]))
    found = [
        WorkloadSummary(
            workload_key=names[digest][0],
            facts=facts.get(digest),
            place=PlaceKey(tuner=names[digest][1], target=target, device_key=device_key, toolchain=toolchain),
            trials=trials,
            failures=trials - valid,
            best_latency=best,
        )
        for digest, target, device_key, toolchain, trials, valid, best, _ in groups
    ]
    return sorted(found, key=lambda summary: -summary.trials)


def by_place(summaries: Iterable[WorkloadSummary]) -> list[PlaceSummary]:
    """Return a summary of each place, most trials first."""
    workloads: Counter[PlaceKey] = Counter()
    trials: defaultdict[PlaceKey, list[int]] = defaultdict(lambda: [0, 0])
    for summary in summaries:
        workloads[summary.place] += 1
        trials[summary.place][0] += summary.trials
        trials[summary.place][1] += summary.failures
    found = [
        PlaceSummary(place=place, workloads=workloads[place], trials=counted, failures=failed)
        for place, (counted, failed) in trials.items()
    ]
    return sorted(found, key=lambda place: -place.trials)


def _facts(session: Session) -> dict[str, TaskFacts]:
    """Return facts by workload digest."""
    query = select(
        TuningTaskRow.workload_digest,
        func.min(TuningTaskRow.name),
        func.min(TuningTaskRow.description),
        func.max(TuningTaskRow.flop),
    ).group_by(TuningTaskRow.workload_digest)
    return {
        digest: TaskFacts(name=name or "", description=description or "", flop=flop or 0.0)
        for digest, name, description, flop in session.execute(query)
    }


def _first_of_each(groups: Sequence[tuple[str, int]]) -> list[int]:
    """Return the first record of each workload, given pairs of workload digest and record id."""
    first: dict[str, int] = {}
    for digest, record_id in groups:
        first[digest] = min(record_id, first.get(digest, record_id))
    return list(first.values())


def _names(session: Session, record_ids: Sequence[int]) -> dict[str, tuple[str, str]]:
    """Return workload key and tuner of each record, by workload digest."""
    found: dict[str, tuple[str, str]] = {}
    for start in range(0, len(record_ids), _IDS_AT_ONCE):
        some = record_ids[start : start + _IDS_AT_ONCE]
        query = select(RecordRow.workload_digest, RecordRow.workload_key, RecordRow.tuner)
        rows = session.execute(query.where(RecordRow.id.in_(some)))
        found.update((digest, (key, tuner)) for digest, key, tuner in rows)
    return found
