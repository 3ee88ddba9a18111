"""Filters of measured and imported records."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_

from domain.records import ImportState, Provenance
from domain.targets import split_threads
from storage.tables import ImportedRecordRow, RecordRow, workload_digest

AnyRecordRow = type[RecordRow] | type[ImportedRecordRow]


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
    """The job that measured, or tried, the record."""
    valid_only: bool = False
    """Omit failed trials and claimed failures."""
    provenance: Provenance | None = Provenance.MEASURED
    """None for measured records and then imported ones."""
    owner: str | None = None
    """Owner of imported records, to which alone this and the next two apply; None for all owners."""
    state: ImportState | None = None
    ids: tuple[int, ...] = ()


def conditions(row: AnyRecordRow, wanted: RecordFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.workload_key is not None:
        found.append(row.workload_digest == workload_digest(wanted.workload_key))
    if wanted.target is not None:
        found.append(_is_target(row, wanted.target))
    for name in ("device_key", "toolchain", "tuner", "job_id"):
        value = getattr(wanted, name)
        if value is not None:
            found.append(getattr(row, name) == value)
    if wanted.valid_only:
        found.append(row.latency.is_not(None))
    if row is ImportedRecordRow:
        found += _of_imported(wanted)
    return found


def _of_imported(wanted: RecordFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.owner is not None:
        found.append(ImportedRecordRow.owner == wanted.owner)
    if wanted.state is not None:
        found.append(ImportedRecordRow.state == wanted.state)
    if wanted.ids:
        found.append(ImportedRecordRow.id.in_(wanted.ids))
    return found


def _is_target(row: AnyRecordRow, target: str) -> ColumnElement[bool]:
    text, threads = split_threads(target)
    if threads:
        return row.target == target
    return or_(row.target == text, row.target.startswith(f"{text} -num-cores=", autoescape=True))
