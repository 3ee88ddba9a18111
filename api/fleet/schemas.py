"""JSON schemas of workers, devices, targets and engines."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from api import schemas as shared
from domain.workers import Worker as DomainWorker


class Accelerator(BaseModel):
    key: str
    name: str


class Worker(BaseModel):
    id: str
    hostname: str
    pid: int
    device_key: str
    device: str
    native_target: str
    accelerators: list[Accelerator] = Field(description="GPUs; a worker with a GPU runs only CUDA jobs.")
    toolchains: list[str]
    current_job: str | None = Field(description="Null when idle, or if the job has another owner.")
    busy: bool = Field(description="Whether it runs a job of any owner.")
    alive: bool
    release: str = Field(description="Release of the application; empty for old workers that do not report it.")
    trackers: list[str] | None = Field(description="RPC trackers that it may use; null: any.")
    clock_ahead: float | None = Field(description="Seconds by which its host's clock is ahead of the database's.")
    started_at: datetime
    last_seen_at: datetime


class Workers(BaseModel):
    workers: list[Worker] = Field(description="Longest-serving first.")
    warnings: list[shared.Notice] = Field(
        description="workers_differ: some live workers run another release than this server. clock_differs: "
        "host clocks differ from the database's."
    )
    next_page_token: str | None = Field(description="Null on the last page.")


class Device(BaseModel):
    key: str
    name: str
    kind: Literal["cpu", "gpu"]
    threads: int
    workers: int = Field(description="Live workers that measure on it.")


class QuarantinedDevice(BaseModel):
    """A device behind an RPC tracker that failed a job and is not used for a while."""

    id: str = Field(description="tracker/key/host:port")
    job: str | None = Field(description="The last job that it failed; null if it has another owner.")
    reason: str
    since: datetime
    until: datetime


class Devices(BaseModel):
    devices: list[Device]
    quarantined: list[QuarantinedDevice]


class Targets(BaseModel):
    targets: list[str] = Field(description="Suggested targets: 'native' and those of the live workers' CPUs and GPUs.")
    kinds: list[str] = Field(description="Any TVM target of these kinds is accepted as well.")


class Engine(BaseModel):
    name: str
    toolchains: list[str] = Field(description="Engine, TVM and LLVM versions that live workers run.")
    workers: int = Field(description="Live workers that run it.")


class Engines(BaseModel):
    engines: list[Engine]


def worker(value: DomainWorker, *, alive: bool, jobs: Collection[str]) -> Worker:
    """Convert a worker; ``jobs`` are the ids of jobs that the caller may see."""
    return shared.fill(
        Worker,
        value,
        device_key=value.device.key,
        device=value.device.name,
        native_target=value.native_target.identity,
        toolchains=[toolchain.identity for toolchain in value.toolchains],
        current_job=value.current_job if value.current_job in jobs else None,
        busy=value.current_job is not None,
        alive=alive,
    )
