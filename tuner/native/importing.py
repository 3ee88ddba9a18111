"""Import of native record lines as records of the machine and toolchain that measured them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from domain.jobs import Tuner
from domain.records import Record, RecordKey
from domain.targets import Device, Target, Toolchain
from tuner.native import targets
from tuner.native.lines import NativeRecord, Refused, expect

IMPORTED = "imported:"
"""Prefix of the job identifier in imported records."""
WORKER = "import"
"""Worker identifier in imported records."""


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


def record(found: NativeRecord, origin: RecordOrigin, *, number: int, now: datetime) -> Record:
    """Return the record to store for one line; ``number`` counts from 0. Raises Refused.

    A line is imported under its own identity or rejected: a measurement for one target, thread count or TVM version
    never becomes a record of another.
    """
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
    """Return the job identifier of imported records, which depends only on the lines' identity."""
    identity = "\n".join([key.target, key.device_key, key.toolchain])
    return f"{IMPORTED}{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


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
