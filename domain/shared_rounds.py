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
    """Its claimant said what it came to."""
    LOST = "lost"
    """Its claimant fell silent, gave it back, or the job went to another worker. Its stored trials count."""
    WITHDRAWN = "withdrawn"
    """Nobody had claimed it."""


AT_WORK = (RoundState.OPEN, RoundState.CLAIMED)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What somebody needs to know to spend the trials; no path, as those differ from host to host."""

    workload_key: str
    tuner: str
    target: str
    device_key: str
    toolchain: str
    """As in ``RecordKey``."""
    request: dict[str, Any]
    """The parameters of an engine's ``tune`` that every claimant has in common."""
    trials: int
    first_trial: int
    """Trials that the job has already spent on this workload."""
    seconds_limit: float | None
    lock_place: str
    """Where who offers it measures in turns with others, see ``domain.workers.Worker``; empty where nobody does."""
    known_to: str | None = None
    """The worker that searched the workload last, and need not begin anew."""


@dataclass(frozen=True, kw_only=True)
class SharedRound:
    id: int
    job_id: str
    attempt: int
    """Of the job's lease under which it was offered; under another one it is nobody's."""
    state: RoundState
    opened_at: datetime
    offer: Offer
    worker_id: str | None
    """Its claimant."""
    lease_expires_at: datetime | None
    """Of the claim."""
    seconds: float | None
    """What it took, without waiting for the device."""
    exhausted: bool | None
    default_latency: float | None
    failure: Failure | None

    def seconds_left(self, now: datetime, *, waited: float = 0.0) -> float | None:
        """What is left of the tuning time that the round was offered with, but for what its claimant ``waited``."""
        limit = self.offer.seconds_limit
        spent = max(0.0, (now - self.opened_at).total_seconds() - waited)
        return None if limit is None else max(0.0, limit - spent)

    def is_silent(self, now: datetime) -> bool:
        """Whether its claimant let the claim run out."""
        expires = self.lease_expires_at
        return self.state is RoundState.CLAIMED and expires is not None and expires <= now
