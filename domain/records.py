"""Records: the stored results of trials."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from domain.digests import ScheduleDigest


class TrialError(StrEnum):
    INVALID_SCHEDULE = "invalid_schedule"  # the schedule cannot be instantiated or fails the verifier
    BUILD_ERROR = "build_error"  # the compiler rejected it
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"  # the built function raised or killed its process
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"  # its results differ from those of the untuned operator
    WRONG_DEVICE = "wrong_device"
    DEVICE_LOST = "device_lost"
    UNKNOWN = "unknown"


class Provenance(StrEnum):
    """Where a record comes from."""

    MEASURED = "measured"  # by a worker of this service
    IMPORTED = "imported"  # by a caller, whose latencies are only claimed


class ImportState(StrEnum):
    """What became of an imported record."""

    UNTRIED = "untried"  # a candidate, to be measured by a job of its owner
    MEASURED = "measured"  # its schedule has a measured record now
    FAILED = "failed"  # a worker could not build or run it
    REJECTED = "rejected"  # it is not in its task's search space
    INVALIDATED = "invalidated"  # by its owner or an admin


class RecordPlace(TypedDict):
    """The identities by which records are looked up; see ``RecordKey``."""

    target: str
    device_key: str
    toolchain: str


@dataclass(frozen=True, kw_only=True)
class RecordKey:
    """The identities of records; lookups match all of them."""

    workload_key: str
    target: str
    """``Target.identity``"""
    device_key: str
    toolchain: str
    """``Toolchain.identity``"""

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(target=self.target, device_key=self.device_key, toolchain=self.toolchain)


@dataclass(frozen=True, kw_only=True)
class Record:
    key: RecordKey
    tuner: str
    schedule: str
    """The tuner's native line, as TVM wrote it."""
    schedule_digest: ScheduleDigest
    """sha256 of the schedule without its measurement: equal for equal candidates."""
    latencies: tuple[float, ...]
    """Seconds, one per repeat; empty for a failed trial."""
    error: TrialError | None
    error_message: str | None = None
    trial_number: int
    job_id: str
    worker_id: str
    finished_at: datetime
    calibration: float | None = None
    """Seconds of a constant calibration kernel on the device just before the trial; None if not measured.
    Differences mean drift."""

    @property
    def latency(self) -> float | None:
        """Mean over repeats, in seconds, as TVM's own ApplyHistoryBest ranks records."""
        return sum(self.latencies) / len(self.latencies) if self.latencies else None


@dataclass(frozen=True, kw_only=True)
class ImportedRecord:
    """A record that a caller imported: a schedule to be measured, and what the caller claims about it."""

    key: RecordKey
    tuner: str
    schedule: str
    """The tuner's native line, as it was imported."""
    schedule_digest: ScheduleDigest
    latencies: tuple[float, ...]
    """Claimed seconds; empty for a claimed failure, which is never a candidate."""
    error: TrialError | None
    """Claimed."""
    finished_at: datetime
    """Claimed; the time of the import if the line has none."""
    owner: str
    imported_at: datetime
    state: ImportState = ImportState.UNTRIED
    message: str | None = None
    """Why it failed or was rejected."""
    job_id: str | None = None
    """The job that tried it."""
    id: int = 0
    """0 before it is stored."""

    @property
    def latency(self) -> float | None:
        """Claimed mean over repeats, in seconds."""
        return sum(self.latencies) / len(self.latencies) if self.latencies else None
