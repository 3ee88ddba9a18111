"""Import of native record lines as records of the machine and toolchain that the caller says measured them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from domain.jobs import Tuner
from domain.records import ImportedRecord, RecordKey
from domain.targets import Device, Target, Toolchain
from tuner.native import targets
from tuner.native.lines import NativeRecord, Refused, expect


@dataclass(frozen=True, kw_only=True)
class RecordOrigin:
    """Where the lines were measured, according to the caller."""

    tuner: Tuner
    toolchain: Toolchain
    device: Device
    device_is_exact: bool
    """Whether the caller named the device; otherwise its key uses each line's own thread count."""
    target: str | None = None
    """``Target.text``; None to keep each line's own target."""
    threads: int | None = None
    """Thread count for lines without one; others must agree with it."""


def record(found: NativeRecord, origin: RecordOrigin, *, owner: str, now: datetime) -> ImportedRecord:
    """Return the record to store for one line. Raises Refused.

    A line is imported under its own identity or rejected: a measurement for one target, thread count or TVM version
    never becomes a record of another.
    """
    return ImportedRecord(
        key=_key(found, origin),
        tuner=origin.tuner.value,
        schedule=found.schedule,
        schedule_digest=found.schedule_digest,
        latencies=found.latencies,
        error=found.error,
        finished_at=found.finished_at or now,
        owner=owner,
        imported_at=now,
    )


def _key(found: NativeRecord, origin: RecordOrigin) -> RecordKey:
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
