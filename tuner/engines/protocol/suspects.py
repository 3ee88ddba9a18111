"""Devices behind a tracker that may be lost."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.engines.protocol.lanes import Call
from tuner.engines.protocol.trackers import Offer


@dataclass(kw_only=True)
class Suspect:
    """A device whose last call ended badly. Times are those of ``time.monotonic``."""

    offer: Offer
    reason: str
    since: float
    check_at: float
    """When it should have come back."""
    failed_opens: int = 0
    overdue: list[Call]
    """Past their time limits there; the verdict waits for the device."""
