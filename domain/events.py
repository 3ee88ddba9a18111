"""What a watcher of a job sees, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    STATE = "state"  # {state, failure?}
    STAGE = "stage"  # {stage, status: started|finished, seconds?}
    PROGRESS = "progress"
    """{trials_done, trials_planned, seconds, estimate, basis, tasks}; at most two a second.

    ``estimate``: seconds of one run of the network with the best schedules so far. ``tasks``: those that changed, as
    {position, name, description, trials_done, trials_planned, best_latency, best_gflops}.
    """
    NOTE = "note"  # {message}


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    id: int
    """Grows within a job; what ``Last-Event-ID`` names."""
    job_id: str
    kind: EventKind
    data: dict[str, Any] = field(default_factory=dict)
    at: datetime
