"""Import of native record files into the store, and export."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import IO, BinaryIO

from domain import errors
from domain.jobs import Tuner
from domain.records import Record
from storage import record_pages, records, workloads
from storage.database import Database
from storage.record_pages import RecordFilter
from tuner.native import importing, metaschedule
from tuner.native.importing import Origin
from tuner.native.lines import Refused

MOST_REFUSALS_LISTED = 100
_RECORDS_AT_ONCE = 500
_WORKLOADS_AT_ONCE = 50
_IN_MEMORY_BYTES = 4 * 1024 * 1024
_CHUNK = 256 * 1024
_MOST_WORKLOADS = 100_000


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
    """Schedules already stored for the same workload, target, device and toolchain."""
    refused_count: int = 0
    refused: list[Refusal] = field(default_factory=list)
    """The first rejected lines."""
    places: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Number of imported lines by target, device key and toolchain."""

    def refuse(self, line: int, reason: str, file: str | None) -> None:
        self.refused_count += 1
        if len(self.refused) < MOST_REFUSALS_LISTED:
            self.refused.append(Refusal(file=file, line=line, reason=reason))


def take(database: Database, origin: Origin, file: BinaryIO) -> Imported:
    """Store the records of ``file``; importing it again changes nothing. Raises InvalidRequest for an invalid file."""
    report = Imported()
    if origin.tuner is not Tuner.METASCHEDULE:
        _take_lines(database, origin, importing.lines(file), report, lambda line: line, None)
        return report
    with metaschedule.opened(file) as (workload_file, record_file):
        keys = _take_workloads(database, workload_file, report)
        lines = importing.lines(record_file)
        stored_form: Callable[[str], str] = lambda line: metaschedule.with_key(line, keys)  # noqa: E731
        _take_lines(database, origin, lines, report, stored_form, metaschedule.RECORDS_FILE)
    return report


def _take_lines(
    database: Database,
    origin: Origin,
    numbered: Iterator[tuple[int, str | Refused]],
    report: Imported,
    stored_form: Callable[[str], str],
    file: str | None,
) -> None:
    now = datetime.now(UTC)
    while some := list(islice(numbered, _RECORDS_AT_ONCE)):
        found: list[Record] = []
        for number, line in some:
            try:
                if isinstance(line, Refused):
                    raise line
                found.append(importing.read(stored_form(line), origin, number=number - 1, now=now))
            except Refused as refused:
                report.refuse(number, str(refused), file)
        with database.transaction() as session:
            added = records.add_unknown(session, found)
        report.imported += added
        report.known_already += len(found) - added
        report.places.update((one.key.target, one.key.device_key, one.key.toolchain) for one in found)


def _take_workloads(database: Database, file: BinaryIO, report: Imported) -> list[str | None]:
    """Return the workload key of each line, to which records refer by position; None if rejected."""
    keys: list[str | None] = []
    numbered = importing.workloads(importing.lines(file))
    while some := list(islice(numbered, _WORKLOADS_AT_ONCE)):
        definitions: dict[str, str] = {}
        for number, found in some:
            if isinstance(found, Refused):
                report.refuse(number, str(found), metaschedule.WORKLOADS_FILE)
                keys.append(None)
            else:
                definitions.setdefault(*found)
                keys.append(found[0])
        if len(keys) > _MOST_WORKLOADS:
            raise errors.InvalidRequest(
                f"more than {_MOST_WORKLOADS} workloads", hint="Split the file and import the parts."
            )
        with database.transaction() as session:
            workloads.add_missing(session, definitions, tuner=Tuner.METASCHEDULE)
    return keys


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
