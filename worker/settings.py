"""How a worker takes jobs and how long it waits for what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from domain import capabilities, destinations, dispatch
from process import logs, tracing
from process.logs import LogFormat, LogLevel
from process.settings import Settings


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


class WorkerSettings(Settings):
    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=Path("~/.local/share/tunesmith"), description="Folder that holds all state and every environment."
    )
    broker_url: str | None = Field(
        default=None,
        description="URL of the message broker (Redis or Valkey); by default the one that `serve` starts.",
    )
    broker_visibility_seconds: float = Field(
        default=dispatch.VISIBILITY_SECONDS,
        gt=0,
        description="Seconds after which a message goes to another worker when whoever took it has not said so.",
    )
    takes: Literal["auto", "cpu", "cuda"] = Field(
        default="auto",
        description="Jobs that a worker takes: cuda, cpu (all others), or auto: cuda where the host has an NVIDIA GPU.",
    )
    rpc_trackers: Annotated[str, AfterValidator(capabilities.checked_trackers)] = Field(
        default="",
        description="RPC trackers that a worker may use, HOST:PORT with commas between; by default any.",
    )
    worker_alive_seconds: float = Field(
        default=60.0, gt=0, description="Seconds without a heartbeat after which a worker counts as dead."
    )
    lease_seconds: float = Field(
        default=30.0, gt=0, description="Seconds after which a job whose worker fell silent goes to another worker."
    )
    max_attempts: int = Field(
        default=5, gt=0, description="How often a job may lose its worker before it counts as failed."
    )
    attempt_pause_seconds: float = Field(
        default=10.0,
        ge=0,
        description="Seconds that a job rests which has lost its worker twice; twice as long each further time.",
    )
    cancel_poll_seconds: float = Field(
        default=1.0, gt=0, description="How often a worker looks whether its job is to be canceled, in seconds."
    )
    heartbeat_seconds: float = Field(
        default=10.0, gt=0, description="Seconds between two signs of life of a worker in the list of workers."
    )
    forget_worker_seconds: float = Field(
        default=3600.0, gt=0, description="Seconds after its last sign of life when a worker leaves the list."
    )
    look_seconds: float = Field(
        default=3.0,
        gt=0,
        description="Seconds between two looks of an idle worker for jobs, and of every worker for webhooks to send.",
    )
    webhook_hosts: Annotated[str, AfterValidator(destinations.checked_hosts)] = Field(
        default="", description=destinations.ALLOWED_HOSTS
    )
    log_format: LogFormat = Field(default=LogFormat.TEXT, description=logs.FORMAT)
    log_level: LogLevel = Field(default=LogLevel.INFO, description=logs.LEVEL)
    otel: bool = Field(default=False, description=tracing.SETTING)
    worker_metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port on which a worker tells its own metrics; 0 is none. See [metrics.md](metrics.md).",
    )
    worker_metrics_host: str = Field(
        default="127.0.0.1", description="Address on which a worker tells its own metrics."
    )
    engine_restarts: int = Field(
        default=5, ge=0, description="How often a job's engines may crash before the job counts as failed."
    )
    blob_retry_seconds: float = Field(
        default=120.0,
        ge=0,
        description="Seconds that a job waits for a blob store that fails before its worker gives it back for later.",
    )
    blob_grace_hours: float = Field(
        default=24.0,
        ge=2,
        description="Hours that bytes stay which nothing names, counted from their last put and from the deletion of "
        "what did.",
    )
    keep_logs_days: float | None = Field(
        default=None,
        gt=0,
        description="Days after which logs and events of ended jobs are removed; without a number they stay.",
    )
    benchmark_seconds: float = Field(
        default=60.0, gt=0, description="Seconds after which the final comparison of variants ends early."
    )

    @property
    def patience(self) -> float:
        """Seconds in which every worker that lives has heard of a new time and renewed its lease by it."""
        return self.heartbeat_seconds + self.lease_seconds
