"""The stored outcome of one trial."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from domain.digests import ScheduleDigest


class TrialError(StrEnum):
    INVALID_SCHEDULE = "invalid_schedule"  # the schedule cannot be instantiated or fails the verifier
    BUILD_ERROR = "build_error"  # the compiler refused it
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"  # the built function raised or killed its process
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"  # it runs, but computes something else than the same operator untuned
    WRONG_DEVICE = "wrong_device"
    DEVICE_LOST = "device_lost"
    UNKNOWN = "unknown"


class RecordPlace(TypedDict):
    """The identities by which records are looked up; see ``RecordKey``."""

    target: str
    device_key: str
    toolchain: str


@dataclass(frozen=True, kw_only=True)
class RecordKey:
    """Lookups never cross any of these."""

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
    """sha256 of the schedule alone, without its measurement: the same candidate has the same digest."""
    latencies: tuple[float, ...]
    """Seconds, one per repeat; empty when the trial failed."""
    error: TrialError | None
    error_message: str | None = None
    trial_number: int
    job_id: str
    worker_id: str
    finished_at: datetime
    calibration: float | None = None
    """Seconds that a kernel, always the same, took on the device just before; None where it was not run. What differs
    in it drifted in between."""

    @property
    def latency(self) -> float | None:
        """Mean over repeats, in seconds, as TVM's own ApplyHistoryBest ranks records."""
        return sum(self.latencies) / len(self.latencies) if self.latencies else None
