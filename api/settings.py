"""Settings of the API: address, authentication, limits."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from process.settings import ServiceSettings


def _checked_proxies(text: str) -> str:
    """Return the addresses and networks without spaces. Raises ValueError for a name, or a network with host bits."""
    named = [part.strip() for part in text.split(",") if part.strip()]
    for part in named:
        ipaddress.ip_network(part)
    return ",".join(named)


class ApiSettings(ServiceSettings):
    host: str = Field(default="127.0.0.1", description="Address that the API listens on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port that the API listens on; 0 means a free port.")
    token: SecretStr | None = Field(
        default=None,
        description="The server's own token, which has every right. `serve` generates one when it is not set "
        "and writes it to server.json; an API that is started otherwise needs one, or TUNESMITH_OPEN.",
    )
    open: bool = Field(default=False, description="Allow every request without a token or login.")
    trusted_proxies: Annotated[str, AfterValidator(_checked_proxies)] = Field(
        default="",
        description="Comma-separated addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are "
        "trusted.",
    )
    rate_per_second: float = Field(
        default=100.0,
        gt=0,
        description="Rate limit in requests per second, for each token, or each address without a token.",
    )
    rate_burst: int = Field(default=500, gt=0, description="Burst of requests that the rate limit allows.")
    failures_per_second: float = Field(
        default=10.0, gt=0, description="Rate limit per second of wrong tokens and login links, for each address."
    )
    failures_burst: int = Field(
        default=20, gt=0, description="Burst of wrong tokens and login links that this limit allows."
    )
    max_model_bytes: int = Field(
        default=2 * 1024**3,
        gt=0,
        description="Largest accepted model or data set, in bytes. The ONNX format allows up to 2 GiB.",
    )
    upload_slots: int = Field(
        default=8,
        gt=0,
        description="Concurrent uploads; further uploads wait. One owner may use half of the slots; further uploads of "
        "that owner are refused.",
    )
    plan_slots: int = Field(default=1, gt=0, description="Concurrent plans; further requests for plans are refused.")
    default_budget_seconds: float = Field(
        default=600.0, gt=0, description="Tuning budget, in seconds, of a job without a budget."
    )
    default_total_seconds: float = Field(
        default=3600.0,
        gt=0,
        description="Total limit, in seconds, of a job without one, besides its tuning budget (10 a trial).",
    )
    default_priority: int = Field(default=5, ge=0, le=9, description="Default priority of a job: 0 runs first, 9 last.")
    access_log: bool = Field(default=True, description="Log each request with its status, duration and caller.")
    events_poll_seconds: float = Field(
        default=0.3, gt=0, description="Interval, in seconds, at which an event stream polls for new events."
    )
    status_seconds: float = Field(
        default=1.0,
        ge=0,
        description="Seconds for which the progress in a job's status is cached; its state and stage are always "
        "current.",
    )
    metrics_open: bool = Field(
        default=False,
        description="Serve GET /metrics without a token, for a Prometheus that cannot send one.",
    )
    header_bytes: int = Field(
        default=128 * 1024, ge=4096, description="Maximum size, in bytes, of a request's line and headers."
    )
    shutdown_seconds: int = Field(default=5, gt=0, description="Seconds that open requests get to finish at shutdown.")
