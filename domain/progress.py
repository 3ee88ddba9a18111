"""How far a job is: by stages, and within tuning by the limit of the budget that is reached first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from domain.jobs import Budget, Stage

_TYPICAL_SECONDS: Mapping[Stage, float] = MappingProxyType(
    {
        Stage.IMPORT: 4.0,
        Stage.BASELINE: 20.0,
        Stage.PLAN: 6.0,
        Stage.COMPILE: 30.0,
        Stage.VERIFY: 5.0,
        Stage.BENCHMARK: 20.0,
        Stage.PUBLISH: 1.0,
    }
)
"""Seconds of each stage but tuning for a small network: the widths of the stages in a progress bar."""
_SECONDS_A_TRIAL = 1.0


@dataclass(frozen=True, kw_only=True)
class TuningProgress:
    """How much of its budget a search has spent."""

    trials_done: int
    trials_planned: int
    seconds: float
    """Seconds of tuning so far."""
    limit_seconds: float | None
    """Seconds after which the search ends; None without a limit."""

    @property
    def share(self) -> float:
        """Spent share of the budget, 0 to 1, by the limit that is nearer."""
        trials = self.trials_done / self.trials_planned if self.trials_planned else 0.0
        seconds = self.seconds / self.limit_seconds if self.limit_seconds else 0.0
        return min(1.0, max(trials, seconds))

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the nearer limit, at the rate of the trials so far; None if unknown."""
        left = []
        if self.trials_done and self.seconds:
            left.append(self.seconds / self.trials_done * max(0, self.trials_planned - self.trials_done))
        if self.limit_seconds is not None:
            left.append(max(0.0, self.limit_seconds - self.seconds))
        return min(left, default=None)


def share(budget: Budget, stage: Stage | None, within: float = 0.0) -> float:
    """Return the finished share of a job, 0 to 1, that has done the share ``within`` of its current stage.

    Stages count with typical times, tuning with its budget, so the share is about that of the job's time.
    """
    if stage is None:
        return 0.0
    widths = [tuning_seconds(budget) if each is Stage.TUNE else _TYPICAL_SECONDS[each] for each in Stage]
    place = list(Stage).index(stage)
    return round((sum(widths[:place]) + within * widths[place]) / sum(widths), 4)


def tuning_seconds(budget: Budget) -> float:
    """Return the seconds that a budget is worth; trials count with a typical time."""
    limits = [budget.seconds, None if budget.trials is None else budget.trials * _SECONDS_A_TRIAL]
    return min(limit for limit in limits if limit is not None)
