"""Workers: Celery worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.placing import Host
from domain.targets import Device, Target, Toolchain


@dataclass(frozen=True, kw_only=True)
class Worker:
    id: str
    """``host:pid:start``, different for every process."""
    hostname: str
    pid: int
    device: Device
    native_target: Target
    accelerators: tuple[Device, ...] = ()
    """GPUs of the host; a worker with GPUs runs only CUDA jobs."""
    toolchains: tuple[Toolchain, ...]
    foreign_cpus: tuple[str, ...] = ()
    """Names for ``-mcpu`` that its LLVM can compile for but its CPU cannot run."""
    trackers: tuple[str, ...] | None = None
    """``HOST:PORT`` of allowed RPC trackers; None for any."""
    current_job: str | None
    """The job that it runs or helps with."""
    release: str = ""
    """Release of the application; empty if unknown."""
    lock_place: str = ""
    """Workers with the same place take turns at measuring; empty if unknown."""
    clock_ahead: float | None = None
    """Seconds by which the host's clock is ahead of the database's; None if not measured."""
    started_at: datetime
    last_seen_at: datetime

    @property
    def host(self) -> Host:
        return Host(
            native=self.native_target.text,
            cpu=self.device,
            accelerators=self.accelerators,
            foreign_cpus=self.foreign_cpus,
        )


@dataclass(frozen=True, kw_only=True)
class QuarantinedDevice:
    """A device that is not used before ``until``."""

    id: str
    """``tracker/key/host:port``"""
    job_id: str
    """The last job that failed because of it."""
    reason: str
    since: datetime
    until: datetime


CLOCK_SECONDS = 5.0
"""Difference between a host's clock and the database's above which there is a warning."""


@dataclass(frozen=True, kw_only=True)
class FleetWarning:
    code: str
    message: str
    hint: str


def fleet_warnings(living: Sequence[Worker], *, version: str) -> list[FleetWarning]:
    """Return warnings about the fleet; ``version`` is the caller's release."""
    return [*_releases(living, version), *_clocks(living)]


def _releases(living: Sequence[Worker], version: str) -> list[FleetWarning]:
    others = sorted({_release(worker) for worker in living if worker.release != version})
    if not others:
        return []
    message = f"some workers run {', '.join(others)}; this server runs release {version}"
    return [
        FleetWarning(code="workers_differ", message=message, hint="Upgrade them in the order of docs/how-to/deploy.md.")
    ]


def _release(worker: Worker) -> str:
    return f"release {worker.release}" if worker.release else "an unknown older release"


def _clocks(living: Sequence[Worker]) -> list[FleetWarning]:
    off = {worker.hostname: worker.clock_ahead for worker in living if abs(worker.clock_ahead or 0.0) > CLOCK_SECONDS}
    if not off:
        return []
    differences = ", ".join(f"{name} by {seconds:+.0f} s" for name, seconds in sorted(off.items()))
    hint = "Synchronize them with NTP. Leases use the database's time; logs and file dates use the host's."
    return [
        FleetWarning(code="clock_differs", message=f"host clocks differ from the database's: {differences}", hint=hint)
    ]
