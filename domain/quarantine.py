"""Devices behind RPC trackers that failed a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class QuarantinedDevice:
    """Not measured on before ``until``."""

    id: str
    """``tracker/key/host:port``"""
    job_id: str
    """The last job that it failed."""
    reason: str
    since: datetime
    until: datetime
