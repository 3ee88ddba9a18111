"""Reading of native record files in batches.

Files come from callers, so only a process with limits reads them: ``python -m tuner.native``, which
``tuner.host.record_reading`` starts. It sends JSON messages of limited size, which the host converts with ``Batch.of``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO, Self

from domain import errors
from domain.digests import ScheduleDigest
from domain.jobs import Tuner
from domain.records import TrialError
from tuner.engines.protocol.messages import MAX_LINE_BYTES, Json
from tuner.native import ansor, autotvm, metaschedule
from tuner.native.lines import LONGEST_LINE_BYTES, NativeRecord, Refused, expect

MOST_REFUSALS_LISTED = 100
"""Rejected lines of a file that are returned with their reasons; the others are only counted."""
_BATCH_BYTES = 1024 * 1024
_BATCH_RECORDS = 500
_LONGEST_ENTRY_BYTES = MAX_LINE_BYTES - 64 * 1024
"""JSON of one record or workload, which must fit a message to an engine, too."""
_LONGEST_REASON = 1000
_MOST_WORKLOADS = 100_000
_READERS: dict[Tuner, Callable[[str], NativeRecord]] = {
    Tuner.AUTOTVM: autotvm.read,
    Tuner.ANSOR: ansor.read,
}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Consecutive lines of one file. Line numbers count from 1."""

    file: str | None
    """File name, for MetaSchedule's two files."""
    definitions: dict[str, str]
    """MetaSchedule's workloads, by key."""
    records: tuple[tuple[int, NativeRecord], ...]
    """With line numbers."""
    refused: tuple[tuple[int, str], ...]
    """Line numbers and reasons of the first rejected lines of the file."""
    refused_count: int

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        return cls(
            file=message["file"],
            definitions={str(key): str(definition) for key, definition in message["definitions"].items()},
            records=tuple((int(number), _native(row)) for number, row in message["records"]),
            refused=tuple((int(number), str(reason)) for number, reason in message["refused"]),
            refused_count=int(message["refused_count"]),
        )


def messages(file: BinaryIO, tuner: Tuner) -> Iterator[Json]:
    """Yield the JSON of batches, for MetaSchedule the workloads first. Raises InvalidRequest for an invalid archive."""
    if tuner is not Tuner.METASCHEDULE:
        yield from _messages(file, None, partial(_record, _READERS[tuner]))
        return
    workload_file, record_file = metaschedule.opened(file)
    keys: list[str | None] = []
    yield from _messages(workload_file, metaschedule.WORKLOADS_FILE, partial(_workload, keys))

    def read(line: str) -> NativeRecord:
        return metaschedule.read(metaschedule.with_key(line, keys))

    yield from _messages(record_file, metaschedule.RECORDS_FILE, partial(_record, read))


def lines(file: BinaryIO) -> Iterator[tuple[int, str | Refused]]:
    """Yield number, from 1, and text of each non-blank line; an unreadable one yields a Refused instead of text."""
    number = 0
    while raw := file.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        if len(raw) > LONGEST_LINE_BYTES and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(LONGEST_LINE_BYTES)
            yield number, Refused(f"longer than {LONGEST_LINE_BYTES} bytes")
            continue
        try:
            text = raw.decode().strip()
        except UnicodeDecodeError:
            yield number, Refused("not UTF-8")
            continue
        if text:
            yield number, text


@dataclass(frozen=True)
class _Entry:
    """A line as part of a message: the fields of a record, or the key and definition of a workload."""

    row: Json | tuple[str, str]
    size: int
    """Bytes of JSON."""

    @classmethod
    def of(cls, row: Json | tuple[str, str]) -> Self:
        """Raises Refused if it is too long."""
        size = len(json.dumps(row))
        expect(size <= _LONGEST_ENTRY_BYTES, f"longer than {_LONGEST_ENTRY_BYTES} bytes of JSON")
        return cls(row, size)


class _Message:
    """Collects lines until they fill a message."""

    def __init__(self, file: str | None) -> None:
        self._size = 0
        self.json: Json = {"file": file, "definitions": {}, "records": [], "refused": [], "refused_count": 0}

    def holds(self, entry: _Entry) -> bool:
        """Return whether there is space for the entry; an empty message has space for any."""
        is_full = self._size + entry.size > _BATCH_BYTES or len(self.json["records"]) >= _BATCH_RECORDS
        return not (self._size and is_full)

    def add(self, number: int, entry: _Entry) -> None:
        self._size += entry.size
        if isinstance(entry.row, tuple):
            self.json["definitions"].setdefault(*entry.row)
        else:
            self.json["records"].append([number, entry.row])

    def refuse(self, number: int, reason: str, *, is_told: bool) -> None:
        self.json["refused_count"] += 1
        if is_told:
            # A line may contain surrogates, which no response can.
            shown = reason[:_LONGEST_REASON].encode(errors="backslashreplace").decode()
            self.json["refused"].append([number, shown])


def _messages(file: BinaryIO, name: str | None, read: Callable[[str | Refused], _Entry]) -> Iterator[Json]:
    message, refused = _Message(name), 0
    for number, line in lines(file):
        try:
            entry = read(line)
        except (Refused, RecursionError) as error:
            reason = str(error) if isinstance(error, Refused) else "nested too deep"
            message.refuse(number, reason, is_told=refused < MOST_REFUSALS_LISTED)
            refused += 1
            continue
        if not message.holds(entry):
            yield message.json
            message = _Message(name)
        message.add(number, entry)
    yield message.json


def _workload(keys: list[str | None], line: str | Refused) -> _Entry:
    """Add the workload's key to ``keys``, to which records refer by position, or None if it is rejected."""
    keys.append(None)
    if len(keys) > _MOST_WORKLOADS:
        raise errors.InvalidRequest(
            f"more than {_MOST_WORKLOADS} workloads", hint="Split the file and import the parts."
        )
    key, definition = metaschedule.read_workload(_text(line))
    entry = _Entry.of((key, definition))
    keys[-1] = key
    return entry


def _record(read: Callable[[str], NativeRecord], line: str | Refused) -> _Entry:
    found = read(_text(line))
    moment = found.finished_at
    return _Entry.of({**dataclasses.asdict(found), "finished_at": None if moment is None else moment.isoformat()})


def _text(line: str | Refused) -> str:
    if isinstance(line, Refused):
        raise line
    return line


def _native(row: Json) -> NativeRecord:
    """Convert the fields back."""
    error, moment = row["error"], row["finished_at"]
    return NativeRecord(
        workload_key=str(row["workload_key"]),
        target=str(row["target"]),
        threads=None if row["threads"] is None else int(row["threads"]),
        schedule=str(row["schedule"]),
        schedule_digest=ScheduleDigest(row["schedule_digest"]),
        latencies=tuple(map(float, row["latencies"])),
        error=None if error is None else TrialError(error),
        finished_at=None if moment is None else datetime.fromisoformat(moment),
        tvm=None if row["tvm"] is None else str(row["tvm"]),
    )
