"""A Celery worker process on a host."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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
    current_job: str | None
    started_at: datetime
    last_seen_at: datetime
