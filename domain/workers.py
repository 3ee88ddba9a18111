"""A Celery worker process on a host."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from domain.placing import Host
from domain.targets import Device, Target, Toolchain


@dataclass(frozen=True, kw_only=True)
class Worker:
    id: str
    """``host:pid:start``, new with every process."""
    hostname: str
    pid: int
    device: Device
    native_target: Target
    accelerators: tuple[Device, ...] = ()
    """GPUs of the host; a worker that has one takes CUDA jobs only."""
    toolchains: tuple[Toolchain, ...]
    foreign_cpus: tuple[str, ...] = ()
    """Names for ``-mcpu`` that its LLVM compiles for and whose code its own CPU does not run."""
    trackers: tuple[str, ...] | None = None
    """``HOST:PORT`` of the RPC trackers that it may use; None for any."""
    current_job: str | None
    """What it works on, or helps with."""
    release: str = ""
    """Of the application; empty of one that does not tell."""
    lock_place: str = ""
    """Workers with the same one measure in turns; empty where nobody knows."""
    clock_ahead: float | None = None
    """Seconds by which its host's clock is before the database's; None where that was not looked at."""
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
