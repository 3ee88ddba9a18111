"""Convergence of a search: the estimated end-to-end latency, and the best of each tuning task, by trial.

The estimate is the time of one run of the network with the best schedules so far. If default schedules were measured,
which AutoTVM does with the first trial of each task, it is the untuned build's time minus the savings on them.
Otherwise it is the sum of the best latencies, once every operator that the search still plans trials for is measured;
one that it plans none for counts with its share, by FLOPs, of the untuned build's time. The estimate never exceeds the
untuned build's time, as that build is published if nothing is faster, and it never rises.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from domain.artifacts import Variant
from domain.digests import WorkloadDigest
from domain.jobs import EventKind, Job, Placement, Precision, Tuner
from domain.stage_results import BaselineResult
from domain.tuning_tasks import ExtractedTask, TuningTask
from storage import artifacts, events, records, stages, tuning_tasks
from storage.tables import RecordRow, workload_digest

MOST_POINTS = 600
"""Maximum points of a line: more than the columns of a screen."""
_NEWEST = 2**63 - 1

Point = tuple[int, float, float]
"""Number of trials, seconds of tuning, and the value: latency in seconds, or GFLOPS."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    trials: int
    estimate: list[Point] = field(default_factory=list)
    """Estimated seconds of one run of the model, at each change and at the end."""
    tasks: dict[int, list[Point]] = field(default_factory=dict)
    """Best GFLOPS of each task by position, at each change."""
    best: dict[int, float] = field(default_factory=dict)
    """Best latency of each task in seconds, by position, at the end of the job; later jobs do not count."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """Measured seconds of one run of whole builds.

    From the baseline stage, which measures fewer runs, until the final benchmark.
    """

    untuned: float | None
    reference: float | None
    reference_name: str
    tuned: float | None = None
    """None until the final benchmark."""
    is_final: bool
    """Whether the times come from the final benchmark."""

    @property
    def measured(self) -> dict[str, float]:
        """The times by name, without those that were not measured."""
        named = {self.reference_name: self.reference, "Untuned": self.untuned, "Tuned": self.tuned}
        return {name: seconds for name, seconds in named.items() if seconds is not None}


class Estimator:
    """State of the estimate at some point of a search, updated trial by trial."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        *,
        level: Level,
        known: Mapping[WorkloadDigest, float],
        defaults: Mapping[WorkloadDigest, float],
        began_at: datetime | None,
    ) -> None:
        """``known`` are best latencies from before the job, ``defaults`` latencies of default schedules in the order
        of their measurement, ``began_at`` the first start of tuning."""
        self.tasks = tasks
        self.level = level
        self.began_at = began_at
        self._defaults = defaults
        self._tasks = {workload_digest(task.extracted.workload_key): task.extracted for task in tasks}
        self._best = {digest: known[digest] for digest in self._tasks if digest in known}
        self._groups = _groups(self._tasks)
        self._flop = sum(self._weight(group) * self._flops(group) for group in self._groups)
        self._planned = {
            workload_digest(task.extracted.workload_key) for task in tasks if task.trials_done < task.trials_planned
        }
        place_of = {digest: place for place, group in enumerate(self._groups) for digest in group}
        self._group_defaults: dict[int, float] = {}
        """Of alternatives, the default that was measured first."""
        for digest, latency in defaults.items():
            if digest in place_of:
                self._group_defaults.setdefault(place_of[digest], latency)
        self._untuned_times = self._times_in_untuned()
        self._trials = 0
        self.estimate: float | None = None
        """Seconds of one run of the network with the best schedules so far; None if unknown."""
        self._reckon()

    @property
    def basis(self) -> str:
        """Identifier of everything that the whole curve depends on: points of different bases do not form a line."""
        return f"{len(self.tasks)}-{len(self._defaults)}-{'end' if self.level.is_final else 'begin'}"

    @property
    def defaults(self) -> dict[int, float]:
        """Seconds of the default schedules by position of the task."""
        return {self._tasks[digest].position: latency for digest, latency in self._defaults.items()}

    def learn(self, digest: WorkloadDigest, latency: float) -> bool:
        """Add a trial; returns whether it is the task's best."""
        if digest not in self._tasks or self._best.get(digest, math.inf) <= latency:
            return False
        self._best[digest] = latency
        self._reckon()
        return True

    def follow(self, trials: Sequence[TrialRow]) -> Curve:
        """Return the curve of the trials, which starts with what was known before them."""
        estimate: list[Point] = []
        tasks: dict[int, list[Point]] = defaultdict(list)
        if self.estimate is not None:
            estimate.append((0, 0.0, self.estimate))
        for trial in trials:
            self._trials += 1
            before = self.estimate
            if trial.latency is None or not self.learn(trial.workload_digest, trial.latency):
                continue
            seconds, extracted = self._seconds(trial), self._tasks[trial.workload_digest]
            tasks[extracted.position].append((self._trials, seconds, extracted.flop / trial.latency / 1e9))
            if self.estimate is not None and self.estimate != before:
                estimate.append((self._trials, seconds, self.estimate))
        if trials and self.estimate is not None and (not estimate or estimate[-1][0] < self._trials):
            estimate.append((self._trials, self._seconds(trials[-1]), self.estimate))
        return Curve(
            trials=self._trials,
            estimate=thinned(estimate),
            tasks={position: thinned(points) for position, points in tasks.items()},
            best={self._tasks[digest].position: latency for digest, latency in self._best.items()},
        )

    def _reckon(self) -> None:
        untuned = self.level.untuned
        self.estimate = self._sum() if untuned is None else min(untuned, self._against(untuned))

    def _sum(self) -> float | None:
        """Return the sum of the best latencies; None if one is missing."""
        best = [(self._weight(group), self._fastest(group)) for group in self._groups]
        known = [weight * latency for weight, latency in best if latency is not None]
        return math.fsum(known) if known and len(known) == len(best) else None

    def _against(self, untuned: float) -> float:
        if self._untuned_times:
            return untuned - math.fsum(time * self._saved(each) for each, time in self._untuned_times.items())
        known = unknown = 0.0
        for group in self._groups:
            weight, best = self._weight(group), self._fastest(group)
            if best is not None:
                known += weight * best
            elif self._planned.isdisjoint(group):
                unknown += weight * untuned * self._flops(group) / self._flop
            else:
                return untuned
        return known + unknown

    def _times_in_untuned(self) -> dict[int, float]:
        """Return the seconds of each operator in a run of the untuned build, by its place among the groups.

        Only of operators whose default schedule was measured. Measured alone they may take longer than in the run, so
        those that were measured last count with what is left of it: another default then changes no earlier estimate.
        """
        found: dict[int, float] = {}
        left = self.level.untuned or 0.0
        for place, default in self._group_defaults.items():
            found[place] = min(left, self._weight(self._groups[place]) * default)
            left -= found[place]
        return found

    def _saved(self, place: int) -> float:
        """Return the share of its default schedule's time that an operator saves."""
        best = self._fastest(self._groups[place])
        return 0.0 if best is None else max(0.0, 1.0 - best / self._group_defaults[place])

    def _weight(self, group: Sequence[WorkloadDigest]) -> int:
        return max(self._tasks[digest].weight for digest in group)

    def _flops(self, group: Sequence[WorkloadDigest]) -> float:
        return max(max(self._tasks[digest].flop for digest in group), 1.0)

    def _fastest(self, group: Sequence[WorkloadDigest]) -> float | None:
        return min((self._best[digest] for digest in group if digest in self._best), default=None)

    def _seconds(self, trial: TrialRow) -> float:
        return 0.0 if self.began_at is None else round(max(0.0, (trial.at - self.began_at).total_seconds()), 2)


def begin(session: Session, job: Job, *, began_at: datetime | None = None) -> Estimator:
    """Return the estimator before the job's first trial. The tasks must have been planned.

    Without ``began_at``, the first start of tuning, points have no seconds.
    """
    tasks = tuning_tasks.of_job(session, job.id)
    digests = {workload_digest(task.extracted.workload_key) for task in tasks}
    firsts = first_ever(session, digests, job.placement) if job.placement else {}
    return Estimator(
        tasks,
        level=_level(session, job),
        known=_known(session, job, digests),
        defaults=defaults(firsts) if job.request.precision is Precision.F32 else {},
        began_at=began_at,
    )


def best_so_far(session: Session, job: Job, estimator: Estimator) -> float | None:
    """Return the least estimate that the job has had, in seconds.

    Another strategy may have led before, whose build may still be published. Estimates from before another measurement
    of the untuned build do not count.
    """
    last = None if estimator.level.is_final else events.latest(session, job.id, EventKind.PROGRESS)
    before = last.data.get("estimate") if last and last.data.get("untuned") == estimator.level.untuned else None
    return min((each for each in (before, estimator.estimate) if each is not None), default=None)


def _level(session: Session, job: Job) -> Level:
    artifact = artifacts.of_job(session, job.id) if job.artifact_id else None
    if artifact is not None and artifact.report.timings:
        medians = {variant: timing.median for variant, timing in artifact.report.timings.items()}
        return Level(
            untuned=medians.get(Variant.UNTUNED),
            reference=medians.get(Variant.REFERENCE),
            reference_name=artifact.report.compared_with,
            tuned=medians.get(Variant.TUNED),
            is_final=True,
        )
    baseline = stages.result(session, job.id, BaselineResult)
    seconds = baseline.seconds if baseline else {}
    return Level(
        untuned=seconds.get(Variant.UNTUNED),
        reference=seconds.get(Variant.REFERENCE),
        reference_name="Reference",
        is_final=False,
    )


def _known(session: Session, job: Job, digests: Collection[WorkloadDigest]) -> dict[WorkloadDigest, float]:
    """Return best latencies that existed before the job's first record, by workload digest."""
    first = first_id(session, job.id)
    if job.placement is None:
        return {}
    return best_before(session, digests, job.placement, record_id=_NEWEST if first is None else first)


def defaults(firsts: Mapping[WorkloadDigest, TrialRow]) -> dict[WorkloadDigest, float]:
    """Return latencies of default schedules, given the oldest trial of each workload: AutoTVM's measures the
    default."""
    return {
        digest: first.latency
        for digest, first in firsts.items()
        if first.latency is not None and first.tuner == Tuner.AUTOTVM
    }


def thinned(points: list[Point], most: int = MOST_POINTS) -> list[Point]:
    """Return evenly spaced points, including the first and the last."""
    if len(points) <= most:
        return points
    step = (len(points) - 1) / (most - 1)
    return [points[round(place * step)] for place in range(most)]


def _groups(tasks: Mapping[WorkloadDigest, ExtractedTask]) -> list[list[WorkloadDigest]]:
    """Group digests of tasks that are alternatives; a build uses the fastest of each group."""
    together: dict[object, list[WorkloadDigest]] = defaultdict(list)
    for digest, extracted in tasks.items():
        together[digest if extracted.alternatives is None else extracted.alternatives].append(digest)
    return list(together.values())


class TrialRow(NamedTuple):
    """Columns of ``RecordRow`` for curves."""

    record_id: int
    workload_digest: WorkloadDigest
    tuner: str
    latency: float | None
    """Seconds; None for a failed trial."""
    at: datetime


def trials_of_job(session: Session, job_id: str) -> list[TrialRow]:
    """Yield the trials of a job in the order in which they were stored."""
    query = select(*_COLUMNS).where(RecordRow.job_id == job_id).order_by(RecordRow.id)
    return [TrialRow(*row) for row in session.execute(query)]


def standing(session: Session, job_id: str, workload_keys: Collection[str]) -> dict[str, tuple[int, float | None]]:
    """Return the number of the job's trials for each workload, and the fastest in seconds."""
    key_of = {workload_digest(key): key for key in workload_keys}
    query = (
        select(RecordRow.workload_digest, func.count(), func.min(RecordRow.latency))
        .where(RecordRow.job_id == job_id, RecordRow.workload_digest.in_(key_of))
        .group_by(RecordRow.workload_digest)
    )
    return {key_of[digest]: (number, best) for digest, number, best in session.execute(query)}


def first_id(session: Session, job_id: str) -> int | None:
    """Return the id of the job's first record; None without records."""
    return session.scalar(select(func.min(RecordRow.id)).where(RecordRow.job_id == job_id))


def first_ever(
    session: Session, workload_digests: Collection[WorkloadDigest], placement: Placement
) -> dict[WorkloadDigest, TrialRow]:
    """Return the oldest record of each workload at the placement, of any owner, by digest, in the order of ids."""
    oldest = (
        select(func.min(RecordRow.id))
        .where(*records.matching(workload_digests, **placement.record_place))
        .group_by(RecordRow.workload_digest)
    )
    query = select(*_COLUMNS).where(RecordRow.id.in_(oldest)).order_by(RecordRow.id)
    found = [TrialRow(*row) for row in session.execute(query)]
    return {trial.workload_digest: trial for trial in found}


def best_before(
    session: Session, workload_digests: Collection[WorkloadDigest], placement: Placement, *, record_id: int
) -> dict[WorkloadDigest, float]:
    """Return each workload's best latency at the placement among records older than ``record_id``, of any owner."""
    query = (
        select(RecordRow.workload_digest, func.min(RecordRow.latency))
        .where(*records.matching(workload_digests, **placement.record_place), RecordRow.id < record_id)
        .group_by(RecordRow.workload_digest)
    )
    return {digest: best for digest, best in session.execute(query) if best is not None}


_COLUMNS = (RecordRow.id, RecordRow.workload_digest, RecordRow.tuner, RecordRow.latency, RecordRow.finished_at)
