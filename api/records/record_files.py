"""Import of native record files into the store, and export."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from api.services import ReadRecords
from domain.jobs import Tuner
from domain.records import ImportedRecord
from storage import imports, record_pages, workloads
from storage.database import Database
from storage.record_filters import RecordFilter
from tuner.native import importing, metaschedule
from tuner.native.importing import RecordOrigin
from tuner.native.lines import Refused
from tuner.native.reading import MOST_REFUSALS_LISTED, Batch

_IN_MEMORY_BYTES = 4 * 1024 * 1024
_CHUNK = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Refusal:
    file: str | None
    """File name, for MetaSchedule's two files."""
    line: int
    """Line number, from 1."""
    reason: str


@dataclass(kw_only=True)
class Imported:
    imported: int = 0
    known_already: int = 0
    """Schedules that the owner has imported already, or that were measured, for the same workload, target, device and
    toolchain."""
    refused_count: int = 0
    refused: list[Refusal] = field(default_factory=list)
    """The first rejected lines."""
    places: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Number of imported lines by target, device key and toolchain."""


def take(database: Database, origin: RecordOrigin, path: Path, read: ReadRecords, *, owner: str) -> Imported:
    """Store the records of a file; importing it again changes nothing. Raises as ``read``."""
    report, now = Imported(), datetime.now(UTC)
    read(path, origin.tuner, lambda batch: _store(database, origin, batch, report, owner=owner, now=now))
    return report


def _store(
    database: Database, origin: RecordOrigin, batch: Batch, report: Imported, *, owner: str, now: datetime
) -> None:
    found: list[ImportedRecord] = []
    refused = list(batch.refused)
    for number, line in batch.records:
        try:
            found.append(importing.record(line, origin, owner=owner, now=now))
        except Refused as error:
            refused.append((number, str(error)))
    with database.transaction() as session:
        workloads.add_missing(session, batch.definitions, tuner=Tuner.METASCHEDULE)
        added = imports.add_unknown(session, found)
    report.imported += added
    report.known_already += len(found) - added
    report.places.update((one.key.target, one.key.device_key, one.key.toolchain) for one in found)
    report.refused_count += batch.refused_count + len(refused) - len(batch.refused)
    report.refused += [Refusal(file=batch.file, line=line, reason=reason) for line, reason in sorted(refused)]
    del report.refused[MOST_REFUSALS_LISTED:]


def lines(database: Database, wanted: RecordFilter) -> Iterator[bytes]:
    """Yield native lines of AutoTVM and Ansor."""
    for some in record_pages.stream(database, wanted):
        yield "".join(record.schedule.rstrip("\n") + "\n" for record in some).encode()


def database_tar(database: Database, wanted: RecordFilter) -> Iterator[bytes]:
    """Return MetaSchedule's two files as a tar; records of workloads without a stored definition are omitted."""
    with _temporary() as workload_file, _temporary() as record_file, _temporary() as packed:
        positions: dict[str, int] = {}
        for some in record_pages.stream(database, wanted):
            new = {record.key.workload_key for record in some} - positions.keys()
            with database.reading() as session:
                definitions = workloads.definitions(session, sorted(new))
            for key, definition in definitions.items():
                positions[key] = len(positions)
                workload_file.write(definition.strip().encode() + b"\n")
            for line in metaschedule.with_positions((record.schedule for record in some), positions):
                record_file.write(line.encode() + b"\n")
        metaschedule.write(packed, workload_file, record_file)
        packed.seek(0)
        while chunk := packed.read(_CHUNK):
            yield chunk


def _temporary() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)
