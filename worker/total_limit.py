"""A job's total limit: how much time the current stage may use, and how much is kept back to finish.

Until a build is verified, stages may use the limit but for the time of a short benchmark; then the job fails. After
that, every stage leaves the following ones the time that they need by what the baseline measured: the search ends
early, builds are left out, and the best verified one is published.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from domain import errors, progress
from domain.jobs import LEASED_STATES, Budget, JobEvent, Stage
from domain.stage_results import BaselineResult, StageResults
from tuner.results import timing

_LEAST_FINISH_SHARE, _LEAST_FINISH_SECONDS = 0.2, 60.0
"""What is kept back to finish before the baseline has measured it, whichever is less."""
_ALTERNATIVE_SHARE = 0.5
_STOP_SECONDS = 5.0
_LEAST_SECONDS = 1e-3
"""A budget is positive."""
_PUBLISH_SECONDS = 5.0
_MARGIN = 1.5
"""Factor on the baseline's times: tuned builds differ from the untuned one."""
_VARIANTS = 3
_LEAST_AROUND = 30.0
_TIMED_BY = 1.75
"""When timings end, in multiples of the tuning budget: a last round, the profile and publication take some seconds."""
_FINISHING = (Stage.COMPILE, Stage.VERIFY, Stage.BENCHMARK)


@dataclass(kw_only=True)
class TotalLimit:
    """The time that a job has left."""

    seconds: float | None = None
    """The limit; None without one."""
    before: float = 0.0
    """Running seconds of earlier attempts."""
    around: float = _LEAST_AROUND
    """For how long the stages before the search may try alternatives, or those after it repeat timings."""
    now: Callable[[], float] = lambda: time.monotonic()
    _started: float = field(init=False)
    stage: Stage = field(init=False, default=Stage.IMPORT)
    """The current stage."""
    _searched_at: float | None = field(init=False, default=None)
    _kept: float = field(init=False, default=0.0)
    _part: float = field(init=False, default=1.0)

    def __post_init__(self) -> None:
        self._started = self.now()

    @property
    def spent(self) -> float:
        """Running seconds of the job."""
        return self.before + self.now() - self._started

    @property
    def left(self) -> float | None:
        """Seconds that the next step of the stage may take; None without a limit, as for the last stages."""
        if self.seconds is None or self.stage in (Stage.BENCHMARK, Stage.PUBLISH):
            return None
        return max(0.0, self.seconds - self.spent - self._kept) * self._part

    @property
    def unspent(self) -> float:
        """Seconds until the limit, whatever is kept back; infinite without a limit."""
        return math.inf if self.seconds is None else max(0.0, self.seconds - self.spent)

    @property
    def left_to_repeat(self) -> float:
        """Seconds for which timings after the search may be repeated: fewer, if what came before took longer."""
        return max(0.0, min(self.around - self.since_search, _TIMED_BY * self.around - self.spent, self.unspent))

    @property
    def since_search(self) -> float:
        """Seconds since the search ended, in this attempt."""
        return 0.0 if self._searched_at is None else self.spent - self._searched_at

    @property
    def is_reached(self) -> bool:
        return self.left == 0.0

    def enter(self, stage: Stage, results: StageResults) -> None:
        """Begin a stage. Raises TimeLimit if no time is left and no build was verified yet."""
        self.stage, self._part = stage, 1.0
        if stage in _FINISHING and self._searched_at is None:
            self._searched_at = self.spent
        baseline = results.find(BaselineResult)
        if baseline is not None:
            self._kept = _finish_seconds(stage, baseline)
        elif self.seconds is not None:
            self._kept = min(_LEAST_FINISH_SHARE * self.seconds, _LEAST_FINISH_SECONDS)
            if self.is_reached:
                raise self.error("the job used up its time")

    @property
    def left_to_search(self) -> float | None:
        """Seconds after which an engine must end its round by itself, before it is ended; None without a limit."""
        left = self.left
        return None if left is None else max(0.0, left - _STOP_SECONDS)

    def cut_seconds(self, seconds: float | None, *, spent: float = 0.0) -> float | None:
        """Reduce a limit of the search in seconds, of which ``spent`` are over, to what is left."""
        left = self.left_to_search
        if left is None:
            return seconds
        return spent + left if seconds is None else min(seconds, spent + left)

    def cut(self, budget: Budget) -> Budget:
        """Reduce the seconds of a budget to what is left."""
        seconds = self.cut_seconds(budget.seconds)
        return budget if seconds is None else replace(budget, seconds=max(seconds, _LEAST_SECONDS))

    @contextmanager
    def alternative(self, *, last: bool) -> Iterator[None]:
        """Limit each step to half of what is left, unless this is the ``last`` of several alternatives."""
        before, self._part = self._part, 1.0 if last else _ALTERNATIVE_SHARE
        try:
            yield
        finally:
            self._part = before

    def shortened(self, timeout: float | None) -> float | None:
        """Return a step's time limit in seconds, by its own ``timeout`` and by what is left."""
        left = self.left
        if left is None:
            return timeout
        return left if timeout is None else min(timeout, left)

    def error(self, reason: str) -> errors.TimeLimit:
        details = {"stage": self.stage.value, "total_seconds": self.seconds, "running_seconds": round(self.spent, 1)}
        message = f"{reason}: stage {self.stage} reached the job's total limit of {self.seconds or 0.0:g} s"
        return errors.TimeLimit(message, details=details)


def around_seconds(budget: Budget, *, is_later_size: bool = False) -> float:
    """Return ``TotalLimit.around`` of a job.

    Together, what is done around the search may take as long as the search (``left_to_repeat``), so that a job takes at
    most about twice its tuning budget; what cannot be left out may take longer. Small budgets allow more, but not for
    the sizes of a job after its first, of which there may be many.
    """
    seconds = progress.tuning_seconds(budget)
    return seconds if is_later_size else max(_LEAST_AROUND, seconds)


def running_seconds(states: Sequence[JobEvent], until: datetime) -> float:
    """Return for how long a job has run, from its ``state`` events: queueing does not count.

    The time until the loss of a worker is noticed counts.
    """
    total, since = 0.0, None
    for event in states:
        if event.data["state"] in LEASED_STATES:
            since = since or event.at
        elif since is not None:
            total += max(0.0, (event.at - since).total_seconds())
            since = None
    return total if since is None else total + max(0.0, (until - since).total_seconds())


def _finish_seconds(stage: Stage, baseline: BaselineResult) -> float:
    """Return the seconds that the stages after this one need, with one tuned build and the shortest benchmark."""
    following = list(Stage)[list(Stage).index(stage) + 1 :]
    run = max(baseline.seconds.values(), default=0.0)
    needed = {
        Stage.COMPILE: _MARGIN * baseline.build_seconds,
        Stage.VERIFY: _MARGIN * baseline.verify_seconds,
        Stage.BENCHMARK: timing.least_seconds(_VARIANTS, run=run, start=baseline.start_seconds),
        Stage.PUBLISH: _PUBLISH_SECONDS,
    }
    return sum(needed.get(each, 0.0) for each in following)
