"""Lines that people bring along, as records of the machine and tools that they were measured with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from domain.jobs import Tuner
from domain.records import Record, RecordKey
from domain.targets import Device, Target, Toolchain
from tuner.native import ansor, autotvm, metaschedule, targets
from tuner.native.lines import LONGEST_LINE_BYTES, NativeRecord, Refused, expect

_READERS: dict[Tuner, Callable[[str], NativeRecord]] = {
    Tuner.AUTOTVM: autotvm.read,
    Tuner.ANSOR: ansor.read,
    Tuner.METASCHEDULE: metaschedule.read,
}
IMPORTED = "imported:"
"""Begins what stands for the job in imported records."""
WORKER = "import"
"""Stands for the worker in imported records."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the lines were measured, as the caller says."""

    tuner: Tuner
    toolchain: Toolchain
    device: Device
    device_is_exact: bool
    """Whether the caller named the device; else the key of one with each line's own thread count is meant."""
    target: str | None = None
    """``Target.text``; None takes every line under its own target."""
    threads: int | None = None
    """Of lines that name none; others must agree with it."""


def read(line: str, origin: Origin, *, number: int, now: datetime) -> Record:
    """The record of one line in the form that is stored; ``number`` counts from 0. Raises Refused.

    The record is its candidate's under the line's own identity, or it is refused: what was measured for one target,
    number of threads or TVM never becomes a record of another.
    """
    try:
        found = _READERS[origin.tuner](line)
    except RecursionError as error:
        raise Refused("nested too deep") from error
    key = _key(found, origin)
    return Record(
        key=key,
        tuner=origin.tuner.value,
        schedule=found.schedule,
        schedule_digest=found.schedule_digest,
        latencies=found.latencies,
        error=found.error,
        trial_number=number,
        job_id=job_of(key),
        worker_id=WORKER,
        finished_at=found.finished_at or now,
    )


def job_of(key: RecordKey) -> str:
    """What stands for the job in imported records: the same wherever lines of one identity come from."""
    identity = "\n".join([key.target, key.device_key, key.toolchain])
    return f"{IMPORTED}{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


def lines(file: BinaryIO) -> Iterator[tuple[int, str | Refused]]:
    """Number, from 1, and text of each line that is not blank; one that cannot be read comes as its refusal."""
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


def workloads(numbered: Iterable[tuple[int, str | Refused]]) -> Iterator[tuple[int, tuple[str, str] | Refused]]:
    """Number, and key and definition, of each line of a MetaSchedule workload file."""
    for number, text in numbered:
        try:
            yield number, text if isinstance(text, Refused) else metaschedule.read_workload(text)
        except Refused as refused:
            yield number, refused


def _key(found: NativeRecord, origin: Origin) -> RecordKey:
    text = found.target
    if origin.target is not None:
        expect(targets.meant_by(text, origin.target), f"measured for {text!r}, not for {origin.target!r}")
        text = origin.target
    if found.tvm is not None:
        expect(found.tvm == origin.toolchain.tvm, f"measured with TVM {found.tvm[:40]}, not {origin.toolchain.tvm}")
    threads = found.threads or origin.threads
    if threads is None:
        raise Refused("its target has no core count: set threads")
    if origin.threads is not None:
        expect(threads == origin.threads, f"measured with {threads} threads, not {origin.threads}")
    device = origin.device if origin.device_is_exact else origin.device.with_threads(threads)
    expect(device.with_threads(threads).key == device.key, f"measured with {threads} threads, unlike {device.key!r}")
    return RecordKey(
        workload_key=found.workload_key,
        target=Target(text=text, threads=threads).identity,
        device_key=device.key,
        toolchain=origin.toolchain.identity,
    )
