"""Rounds of trials that the worker of a job offers to other workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from domain.jobs import Failure


class RoundState(StrEnum):
    OPEN = "open"
    CLAIMED = "claimed"
    DONE = "done"
    """Finished by its claimant."""
    LOST = "lost"
    """Its claimant stopped sending heartbeats or returned it, or the job changed its worker. Stored trials count."""
    WITHDRAWN = "withdrawn"
    """Not claimed by anybody."""


AT_WORK = (RoundState.OPEN, RoundState.CLAIMED)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The information needed to run the trials, without paths, which differ between hosts."""

    workload_key: str
    tuner: str
    target: str
    device_key: str
    toolchain: str
    """As in ``RecordKey``."""
    request: dict[str, Any]
    """Parameters of the engine's ``tune`` request that all claimants share."""
    trials: int
    first_trial: int
    """Trials that the job has already spent on this workload."""
    seconds_limit: float | None
    lock_place: str
    """Place where the offering worker takes turns at measuring, see ``domain.workers.Worker``; empty without one."""
    known_to: str | None = None
    """Worker that searched the workload last, and can continue without a new start."""


@dataclass(frozen=True, kw_only=True)
class SharedRound:
    id: int
    job_id: str
    attempt: int
    """Attempt of the job's lease under which it was offered; with another one it is void."""
    state: RoundState
    opened_at: datetime
    offer: Offer
    worker_id: str | None
    """Its claimant."""
    lease_expires_at: datetime | None
    """Expiry of the claim."""
    seconds: float | None
    """Duration, without waiting for the device."""
    exhausted: bool | None
    default_latency: float | None
    failure: Failure | None

    def seconds_left(self, now: datetime, *, waited: float = 0.0) -> float | None:
        """Return the rest of the round's tuning time, without the time that its claimant ``waited``."""
        limit = self.offer.seconds_limit
        spent = max(0.0, (now - self.opened_at).total_seconds() - waited)
        return None if limit is None else max(0.0, limit - spent)

    def is_silent(self, now: datetime) -> bool:
        """Return whether the claim has expired."""
        expires = self.lease_expires_at
        return self.state is RoundState.CLAIMED and expires is not None and expires <= now
