"""Store trials as they arrive, and report progress at most twice a second."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import Any

from sqlalchemy.orm import Session

from domain.jobs import EventKind, Stage
from domain.progress import TuningProgress, share
from storage import convergence, events, jobs, records, tuning_tasks
from storage.convergence import Estimator
from storage.tables import workload_digest
from worker import clock
from worker.pipeline.context import JobContext
from worker.pipeline.search import candidates, spool, strategies

_LEAST_PAUSE = 0.5
"""Seconds between two events; the next one reports everything in between."""


class SearchProgress:
    """The job's tuning tasks as in the database, updated with every trial."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        with context.database.reading() as session:
            last = events.latest(session, context.job.id, EventKind.PROGRESS)
        self.seconds_before: float = last.data.get("seconds", 0.0) if last else 0.0
        """Tuning seconds of earlier attempts."""
        self._seconds = self.seconds_before
        self._reported_at = -math.inf
        self._is_reported = True
        self._changed: set[str] = set()
        """Workloads for the next event."""
        self.reload()

    def reload(self) -> None:
        with self._context.database.reading() as session:
            self.tasks = tuning_tasks.of_job(session, self._context.job.id)
            self.trials_done = records.count_of_job(session, self._context.job.id)
        self._done = {task.extracted.workload_key: task.trials_done for task in self.tasks}
        self._beside = self.trials_done - sum(self._done.values())
        self._best = {task.extracted.workload_key: task.best_latency for task in self.tasks}
        self._by_key = {task.extracted.workload_key: task for task in self.tasks}
        self._estimator: Estimator | None = None

    @property
    def trials_planned(self) -> int:
        """Including the trials spent on strategies that do not lead."""
        return sum(task.trials_planned for task in self.tasks) + self._beside

    def best(self, workload_key: str) -> float | None:
        """Seconds."""
        return self._best[workload_key]

    def done(self, workload_key: str) -> int:
        return self._done[workload_key]

    def recover(self, *, seconds: float) -> None:
        """Store the unstored trials of the spool."""
        trials = list(spool.trials(self._context))
        found = [spool.record_of(self._context, trial) for trial in trials]
        if not found:
            return
        with self._context.transaction() as session:
            added = records.add(session, found)
            for trial in trials:
                candidates.settle_trial(session, self._context.job, trial)
            if added:
                self.trials_done = records.count_of_job(session, self._context.job.id)
                self._count(session, seconds)
        self.reload()
        self.report(at_once=True)

    def store(self, data: dict[str, Any], *, seconds: float) -> None:
        """Store one trial's record and the new counts in one transaction. Raises LeaseLost."""
        record = spool.record_of(self._context, data)
        key = record.key.workload_key
        with self._context.transaction() as session:
            added = records.add(session, [record])
            candidates.settle_trial(session, self._context.job, data)
            self.trials_done += added
            self._advance(key, self._done[key] + added, record.latency)
            self._count(session, seconds)
            self._report_if_due(session)

    def learn_of(self, workload_keys: Collection[str], *, seconds: float) -> None:
        """Count what helpers have stored of these workloads. Raises LeaseLost."""
        if not workload_keys:
            return
        with self._context.database.reading() as session:
            found = convergence.standing(session, self._context.job.id, workload_keys)
            total = records.count_of_job(session, self._context.job.id)
        if total == self.trials_done:
            return
        for key, (done, best) in found.items():
            self._advance(key, done, best)
        self.trials_done = total
        with self._context.transaction() as session:
            self._count(session, seconds)
            self._report_if_due(session)

    def touch(self, workload_key: str) -> None:
        """Include this workload in the next event."""
        self._changed.add(workload_key)
        self._is_reported = False

    def report(self, *, at_once: bool = False) -> None:
        """Report the changes since the last event, if it is time or ``at_once``. Raises LeaseLost."""
        if self._is_reported or not (at_once or self._is_due()):
            return
        with self._context.transaction() as session:
            self._report(session)

    def _advance(self, key: str, done: int, latency: float | None) -> None:
        # The first trial may be the default schedule, which the estimate counts from; after the last one, it expects
        # no more.
        if not self._done[key] or done >= self._by_key[key].trials_planned:
            self._estimator = None
        self._done[key] = done
        if latency is not None:
            self._learn(key, latency)

    def _learn(self, key: str, latency: float) -> None:
        best = self._best[key]
        if best is not None and best <= latency:
            return
        self._best[key] = latency
        self._changed.add(key)
        if self._estimator is not None:
            self._estimator.learn(workload_digest(key), latency)

    def _count(self, session: Session, seconds: float) -> None:
        self._seconds = self.seconds_before + seconds
        self._is_reported = False
        jobs.set_progress(
            session,
            self._context.job.id,
            self._context.lease,
            trials_done=self.trials_done,
            trials_planned=self.trials_planned,
        )

    def _is_due(self) -> bool:
        return time.monotonic() - self._reported_at >= _LEAST_PAUSE

    def _report_if_due(self, session: Session) -> None:
        if self._is_due():
            self._report(session)

    def _report(self, session: Session) -> None:
        """Data from which a watcher updates its page and plots without another request."""
        job_id = self._context.job.id
        job = jobs.get(session, job_id)
        if self._estimator is None:
            self._estimator = convergence.begin(session, job)
            self._estimator.follow(convergence.trials_of_job(session, job_id))
        data = {
            "trials_done": self.trials_done,
            "trials_planned": self.trials_planned,
            "seconds": round(self._seconds, 3),
            **self._ahead(),
            "estimate": convergence.best_so_far(session, job, self._estimator),
            "untuned": self._estimator.level.untuned,
            "basis": self._estimator.basis,
            "tasks": [self._standing(key) for key in sorted(self._changed, key=self._position)],
        }
        events.append(session, job_id, EventKind.PROGRESS, data, now=clock.now())
        self._changed.clear()
        self._is_reported, self._reported_at = True, time.monotonic()

    def _ahead(self) -> dict[str, Any]:
        tuning = TuningProgress(
            trials_done=self.trials_done,
            trials_planned=self.trials_planned,
            seconds=self._seconds,
            limit_seconds=self._context.limit.cut_seconds(strategies.limit_seconds(self._context), spent=self._seconds),
        )
        left, budget = tuning.seconds_left, self._context.request.budget
        return {
            "seconds_left": None if left is None else round(left, 1),
            "share": share(budget, Stage.TUNE, tuning.share),
        }

    def _position(self, key: str) -> int:
        return self._by_key[key].extracted.position

    def _standing(self, key: str) -> dict[str, Any]:
        task, best = self._by_key[key], self._best[key]
        return {
            "position": task.extracted.position,
            "name": task.extracted.name,
            "description": task.extracted.description,
            "trials_done": self._done[key],
            "trials_planned": task.trials_planned,
            "best_latency": best,
            "best_gflops": task.extracted.flop / best / 1e9 if best else None,
        }
