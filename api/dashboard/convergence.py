"""How a search converged: the estimated end-to-end latency, and each tuning task's best, trial by trial."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from domain.jobs import Tuner
from domain.tuning_tasks import TuningTask
from storage.tables import digest_of
from storage.trials import Standing, Trial
from tuner import racing

MOST_POINTS = 600
"""Of one line: more than a screen has columns to tell apart."""

Point = tuple[int, float, float]
"""Trials so far, seconds of tuning so far, and the value: latency in seconds, or GFLOPS."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    after: int
    """The newest record in it: what a watcher asks to go on after."""
    trials: int
    estimate: list[Point] = field(default_factory=list)
    """Of one run of the model in seconds, where it changed, and as it is now."""
    tasks: dict[int, list[Point]] = field(default_factory=dict)
    """Position to the task's best GFLOPS, where it changed."""


class Search:
    """What is known at some point of a job's search, brought forward trial by trial."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        *,
        untuned: float | None,
        known: Mapping[str, float],
        defaults_count: bool,
        began_at: datetime | None,
    ) -> None:
        """``untuned``: seconds of one run before tuning. ``known``: best latency by workload digest before the job.

        ``defaults_count``: whether AutoTVM's first trial of a task, of the default schedule, is what untuned builds do.
        """
        self._untuned = untuned
        self._defaults_count = defaults_count
        self._began_at = began_at
        self._tasks = {digest_of(task.extracted.workload_key): task.extracted for task in tasks}
        self._best = {digest: known[digest] for digest in self._tasks if digest in known}
        self._default: dict[str, float] = {}
        self._met: set[str] = set()
        self._trials = 0

    def resume(self, standings: Mapping[str, Standing]) -> None:
        for digest, standing in standings.items():
            self._meet(standing.first)
            self._trials += standing.trials
            if standing.best is not None:
                self._learn(digest, standing.best)

    def follow(self, trials: Sequence[Trial], *, from_start: bool) -> Curve:
        """The curve of the trials; ``from_start`` puts the untuned build in front."""
        estimate: list[Point] = []
        tasks: dict[int, list[Point]] = defaultdict(list)
        if from_start and (start := self.estimate()) is not None:
            estimate.append((0, 0.0, start))
        for trial in trials:
            self._trials += 1
            self._meet(trial)
            if trial.latency is None or not self._learn(trial.workload_digest, trial.latency):
                continue
            seconds, extracted = self._seconds(trial), self._tasks[trial.workload_digest]
            tasks[extracted.position].append((self._trials, seconds, extracted.flop / trial.latency / 1e9))
            if (now := self.estimate()) is not None:
                estimate.append((self._trials, seconds, now))
        if trials and estimate and estimate[-1][0] < self._trials:
            estimate.append((self._trials, self._seconds(trials[-1]), estimate[-1][2]))
        return Curve(
            after=trials[-1].record_id if trials else 0,
            trials=self._trials,
            estimate=thinned(estimate),
            tasks={position: thinned(points) for position, points in tasks.items()},
        )

    def estimate(self) -> float | None:
        """As races reckon it; the untuned build's own while nothing is measured. None when that is not known either."""
        operators = self._operators()
        if self._untuned is None:
            latencies = [each.weight * each.best for each in operators if each.best is not None]
            return sum(latencies) if operators and len(latencies) == len(operators) else None
        found = racing.estimate(self._untuned, operators)
        return self._untuned if found is None else found

    def defaults(self) -> dict[int, float]:
        """Latency of the default schedule by position of the task, where it was measured."""
        return {self._tasks[digest].position: latency for digest, latency in self._default.items()}

    def _operators(self) -> list[racing.Operator]:
        """Tasks that are alternatives count as one, which takes what the fastest does."""
        together: dict[object, list[str]] = defaultdict(list)
        for digest, extracted in self._tasks.items():
            together[digest if extracted.alternatives is None else extracted.alternatives].append(digest)
        return [
            racing.Operator(
                weight=max(self._tasks[digest].weight for digest in digests),
                flop=max(self._tasks[digest].flop for digest in digests),
                default=min((self._default[digest] for digest in digests if digest in self._default), default=None),
                best=min((self._best[digest] for digest in digests if digest in self._best), default=None),
            )
            for digests in together.values()
        ]

    def _meet(self, trial: Trial) -> None:
        digest = trial.workload_digest
        if digest in self._met or digest not in self._tasks:
            return
        self._met.add(digest)
        if trial.latency is not None and trial.tuner == Tuner.AUTOTVM and self._defaults_count:
            self._default[digest] = trial.latency

    def _learn(self, digest: str, latency: float) -> bool:
        if digest not in self._tasks or self._best.get(digest, latency + 1) <= latency:
            return False
        self._best[digest] = latency
        return True

    def _seconds(self, trial: Trial) -> float:
        return 0.0 if self._began_at is None else round(max(0.0, (trial.at - self._began_at).total_seconds()), 2)


def thinned(points: list[Point], most: int = MOST_POINTS) -> list[Point]:
    """Evenly, with the first and the last."""
    if len(points) <= most:
        return points
    step = (len(points) - 1) / (most - 1)
    return [points[round(place * step)] for place in range(most)]
