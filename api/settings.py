"""How the API listens, whom it lets in and what it accepts."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from configuration.settings import Settings
from domain import destinations, logs, tracing
from domain.logs import LogFormat, LogLevel


class ApiSettings(Settings):
    host: str = Field(default="127.0.0.1", description="Address that the API listens on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port that the API listens on; 0 picks a free one.")
    token: SecretStr | None = Field(
        default=None,
        description="The service's own token: whoever sends it may do everything. `serve` makes one when it is not set "
        "and writes it to server.json; an API that is started in another way needs one, or TUNESMITH_OPEN.",
    )
    open: bool = Field(
        default=False, description="Let everyone who reaches the API do everything, without a token or a login."
    )
    rate_per_second: float = Field(
        default=100.0, gt=0, description="Requests a second that one token, or one address without a token, may make."
    )
    rate_burst: int = Field(default=500, gt=0, description="Requests that may come at once before that rate counts.")
    failures_per_second: float = Field(
        default=10.0, gt=0, description="Tries of wrong tokens and login links that one address may make a second."
    )
    failures_burst: int = Field(default=20, gt=0, description="Such tries that may come at once.")
    broker_url: str | None = Field(
        default=None,
        description="URL of a Redis or Valkey server that carries messages; by default the one that `serve` starts.",
    )
    max_model_bytes: int = Field(
        default=2 * 1024**3, gt=0, description="Largest model accepted, in bytes. ONNX files end at 2 GiB."
    )
    upload_slots: int = Field(
        default=8,
        gt=0,
        description="Uploads that are received and inspected at once; more wait for their turn, and of one owner more "
        "than half as many are refused.",
    )
    plan_slots: int = Field(
        default=1, gt=0, description="Plans that are made at once; more are refused until one is done."
    )
    default_budget_seconds: float = Field(
        default=600.0, gt=0, description="Tuning budget in seconds of a job that names none."
    )
    default_priority: int = Field(
        default=5, ge=0, le=9, description="Priority of a job that names none: 0 runs first, 9 last."
    )
    webhook_hosts: Annotated[str, AfterValidator(destinations.checked_hosts)] = Field(
        default="", description=destinations.ALLOWED_HOSTS
    )
    log_format: LogFormat = Field(default=LogFormat.TEXT, description=logs.FORMAT)
    log_level: LogLevel = Field(default=LogLevel.INFO, description=logs.LEVEL)
    otel: bool = Field(default=False, description=tracing.SETTING)
    events_poll_seconds: float = Field(
        default=0.3, gt=0, description="How often a stream of events looks for new ones, in seconds."
    )
    status_seconds: float = Field(
        default=1.0,
        ge=0,
        description="Seconds for which the progress in a job's status is told again without looking; its state and "
        "stage are always those of the moment.",
    )
    worker_alive_seconds: float = Field(
        default=60.0, gt=0, description="Seconds since its last sign of life after which a worker counts as gone."
    )
    metrics_open: bool = Field(
        default=False,
        description="Whether GET /metrics answers without a token, for a Prometheus that cannot send one.",
    )
    header_bytes: int = Field(
        default=128 * 1024, ge=4096, description="Most bytes that a request's line and headers may have."
    )
    shutdown_seconds: int = Field(
        default=5, gt=0, description="Seconds that open requests may take to end when the API is told to stop."
    )
