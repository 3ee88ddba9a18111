"""Settings of a worker: which jobs it accepts, leases, time limits and retention."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from domain import capabilities, dispatch, search_parts
from domain.search_parts import SearchPart
from process.settings import HomeSettings, ServiceSettings


class WorkerSettings(HomeSettings, ServiceSettings):
    broker_visibility_seconds: float = Field(
        default=dispatch.VISIBILITY_SECONDS,
        gt=0,
        description="Redelivery delay, in seconds, for unacknowledged messages.",
    )
    takes: Literal["auto", "cpu", "cuda"] = Field(
        default="auto",
        description="Jobs that a worker accepts: cuda, cpu (all others), or auto (cuda if the host has an NVIDIA GPU).",
    )
    rpc_trackers: Annotated[str, AfterValidator(capabilities.checked_trackers)] = Field(
        default="",
        description="Comma-separated RPC trackers, HOST:PORT, that a worker may use; by default any.",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Lease of a job, in seconds; after a lease expires, another worker claims the job.",
    )
    max_attempts: int = Field(default=5, gt=0, description="Attempts after which a job that lost its worker fails.")
    attempt_pause_seconds: float = Field(
        default=10.0,
        ge=0,
        description="Backoff, in seconds, of a job that has lost its worker twice; doubled after each further loss.",
    )
    cancel_poll_seconds: float = Field(
        default=0.5, gt=0, description="Interval, in seconds, at which a worker checks whether its job was canceled."
    )
    heartbeat_seconds: float = Field(
        default=10.0, gt=0, description="Interval, in seconds, between a worker's heartbeats."
    )
    forget_worker_seconds: float = Field(
        default=3600.0,
        gt=0,
        description="Seconds without a heartbeat after which a worker is removed from the list of workers.",
    )
    look_seconds: float = Field(
        default=3.0,
        gt=0,
        description="Interval, in seconds, at which idle workers poll for jobs, and all workers for webhooks to send.",
    )
    worker_metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port on which a worker serves its own metrics; 0 disables them. See [metrics.md](metrics.md).",
    )
    worker_metrics_host: str = Field(
        default="127.0.0.1", description="Address on which a worker serves its own metrics."
    )
    engine_restarts: int = Field(
        default=5, ge=0, description="Engine crashes that the search of one strategy survives; one more ends it."
    )
    blob_retry_seconds: float = Field(
        default=120.0,
        ge=0,
        description="Seconds that a worker retries a failing blob store before it returns the job to the queue.",
    )
    blob_grace_hours: float = Field(
        default=24.0,
        ge=2,
        description="Hours that unreferenced files are kept, counted from their last upload and from the deletion of "
        "the object that referenced them.",
    )
    keep_logs_days: float | None = Field(
        default=None,
        gt=0,
        description="Days after which logs and events of ended jobs are removed; by default never.",
    )
    benchmark_seconds: float = Field(
        default=60.0, gt=0, description="Time limit, in seconds, of the final benchmark of variants."
    )

    search_without: Annotated[str, AfterValidator(search_parts.checked)] = Field(
        default="",
        description=f"For benchmarks: comma-separated parts of the search to leave out, of {', '.join(SearchPart)}.",
    )

    def searches_with(self, part: SearchPart) -> bool:
        return part not in search_parts.parts_of(self.search_without)

    @property
    def settle_seconds(self) -> float:
        """Seconds within which every live worker has seen a new time and renewed its lease by it."""
        return self.heartbeat_seconds + self.lease_seconds
