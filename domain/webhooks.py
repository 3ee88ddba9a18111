"""Messages to a caller's own server when a job has ended, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Webhook:
    url: str
    secret: str = field(repr=False)
    """Key of the signature, as the Standard Webhooks specification has it: ``whsec_`` and base64."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One message for one job; every attempt is counted, the last one told."""

    id: str
    job_id: str
    url: str
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None
    """None once it was delivered or given up."""
    delivered_at: datetime | None
    last_status: int | None
    """HTTP status of the last response."""
    last_error: str | None
