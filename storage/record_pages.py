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

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from domain import errors
from domain.records import Record, RecordKey
from domain.targets import split_threads
from storage import records
from storage.database import Database
from storage.tables import RecordRow, TuningTaskRow, workload_digest

_ROWS_AT_ONCE = 1000
_TOKEN = re.compile(r"r[0-9]{1,18}")
_IDS_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class RecordFilter:
    """Filters of records; all that are set must match.

    Indexes support ``workload_key``, ``job_id``, and ``tuner`` with all three identities; other combinations scan all
    records.
    """

    workload_key: str | None = None
    target: str | None = None
    """The identity of a target, or its text for any thread count."""
    device_key: str | None = None
    toolchain: str | None = None
    tuner: str | None = None
    job_id: str | None = None
    valid_only: bool = False


def page(
    session: Session, wanted: RecordFilter, *, limit: int, page_token: str | None = None
) -> tuple[list[Record], str | None]:
    """Return at most ``limit`` records, oldest first, and the token of the next page, None on the last. Raises
    InvalidPageToken."""
    rows = session.scalars(_after(wanted, _parse(page_token)).limit(limit + 1)).all()
    token = f"r{rows[limit - 1].id}" if len(rows) > limit else None
    return [records.from_row(row) for row in rows[:limit]], token


def history(
    session: Session, key: RecordKey, *, limit: int, page_token: str | None = None
) -> tuple[list[Record], str | None]:
    """Yield the trials of a key of all owners, including failed ones, in the order of ``page``."""
    wanted = RecordFilter(
        workload_key=key.workload_key, target=key.target, device_key=key.device_key, toolchain=key.toolchain
    )
    return page(session, wanted, limit=limit, page_token=page_token)


def stream(database: Database, wanted: RecordFilter) -> Iterator[list[Record]]:
    """Yield all records in batches, each read in its own transaction, so that a slow reader blocks nobody.

    Records stored in the meantime may be included.
    """
    after = 0
    while True:
        with database.reading() as session:
            rows = session.scalars(_after(wanted, after).limit(_ROWS_AT_ONCE)).all()
            found = [records.from_row(row) for row in rows]
            after = rows[-1].id if rows else after
        if found:
            yield found
        if len(found) < _ROWS_AT_ONCE:
            return


def _after(wanted: RecordFilter, row_id: int) -> Select[Any]:
    conditions: list[ColumnElement[bool]] = [RecordRow.id > row_id]
    if wanted.workload_key is not None:
        conditions.append(RecordRow.workload_digest == workload_digest(wanted.workload_key))
    if wanted.target is not None:
        conditions.append(_is_target(wanted.target))
    for name in ("device_key", "toolchain", "tuner", "job_id"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(getattr(RecordRow, name) == value)
    if wanted.valid_only:
        conditions.append(RecordRow.latency.is_not(None))
    return select(RecordRow).where(*conditions).order_by(RecordRow.id)


def _is_target(target: str) -> ColumnElement[bool]:
    text, threads = split_threads(target)
    if threads:
        return RecordRow.target == target
    return or_(RecordRow.target == text, RecordRow.target.startswith(f"{text} -num-cores=", autoescape=True))


def _parse(token: str | None) -> int:
    if token is None:
        return 0
    if not _TOKEN.fullmatch(token):
        raise errors.InvalidPageToken("invalid page token")
    return int(token[1:])


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
    """None without a tuning task, as for imported records."""
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
