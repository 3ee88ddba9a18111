"""Webhook messages of ended jobs, and their deliveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Webhook:
    url: str
    secret: str = field(repr=False)
    """Key of the signature according to the Standard Webhooks specification: ``whsec_`` and base64."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The message of one job, with the number of attempts and the result of the last one."""

    id: str
    job_id: str
    url: str
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None
    """None after delivery or giving up."""
    delivered_at: datetime | None
    last_status: int | None
    """HTTP status of the last response."""
    last_error: str | None
