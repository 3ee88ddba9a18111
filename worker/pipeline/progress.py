"""Storing trials as they come, and telling watchers how the search goes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy.orm import Session

from domain.events import EventKind
from domain.records import Record
from domain.tuning_tasks import TuningTask
from storage import events, jobs, records, trials, tuning_tasks
from worker import clock
from worker.pipeline import journal
from worker.pipeline.work import Work


class Progress:
    """The job's tuning tasks as the database has them, kept up to date trial by trial."""

    def __init__(self, work: Work) -> None:
        self._work = work
        with work.database.reading() as session:
            last = events.latest(session, work.job.id, EventKind.PROGRESS)
        self.seconds_before: float = last.data.get("seconds", 0.0) if last else 0.0
        """Spent on tuning by earlier attempts."""
        self.reload()

    def reload(self) -> None:
        with self._work.database.reading() as session:
            self.tasks = tuning_tasks.of_job(session, self._work.job.id)
            self.trials_done = records.count_of_job(session, self._work.job.id)
        self._done = {task.extracted.workload_key: task.trials_done for task in self.tasks}
        self._beside = self.trials_done - sum(self._done.values())
        self._best = {task.extracted.workload_key: task.best_latency for task in self.tasks}
        self._by_key = {task.extracted.workload_key: task for task in self.tasks}

    @property
    def trials_planned(self) -> int:
        """Including what was spent on tuners that do not lead."""
        return sum(task.trials_planned for task in self.tasks) + self._beside

    def best(self, workload_key: str) -> float | None:
        """Seconds."""
        return self._best[workload_key]

    def done(self, workload_key: str) -> int:
        return self._done[workload_key]

    def recover(self, *, seconds: float) -> int:
        """Store what engines journaled and nobody stored; returns how many trials that were."""
        found = [journal.record(self._work, entry) for entry in journal.entries(self._work)]
        if not found:
            return 0
        with self._work.database.transaction() as session:
            self._require_lease(session)
            added = records.add(session, found)
            if added:
                self.trials_done = records.count_of_job(session, self._work.job.id)
                self._tell(session, seconds)
        self.reload()
        return added

    def store(self, data: dict[str, Any], *, seconds: float) -> None:
        """One trial, whose record, events and progress appear together. Raises LeaseLost."""
        record = journal.record(self._work, data)
        key = record.key.workload_key
        with self._work.database.transaction() as session:
            self._require_lease(session)
            added = records.add(session, [record])
            self.trials_done += added
            self._done[key] += added
            better = self._learn(record)
            self._tell(session, seconds)
            if better:
                self._tell_task(session, key)

    def learn_of(self, workload_keys: Collection[str], *, seconds: float) -> None:
        """Count what helpers have stored of these workloads, and tell it. Raises LeaseLost."""
        if not workload_keys:
            return
        with self._work.database.reading() as session:
            found = trials.standing(session, self._work.job.id, workload_keys)
            total = records.count_of_job(session, self._work.job.id)
        better = []
        for key, (done, best) in found.items():
            self._done[key] = done
            known = self._best[key]
            if best is not None and (known is None or best < known):
                self._best[key] = best
                better.append(key)
        if total == self.trials_done and not better:
            return
        self.trials_done = total
        with self._work.database.transaction() as session:
            self._require_lease(session)
            self._tell(session, seconds)
            for key in better:
                self._tell_task(session, key)

    def tell_task(self, workload_key: str) -> None:
        with self._work.database.transaction() as session:
            self._require_lease(session)
            self._tell_task(session, workload_key)

    def _require_lease(self, session: Session) -> None:
        self._work.keeper.require(jobs.holds(session, self._work.job.id, self._work.lease))

    def _learn(self, record: Record) -> bool:
        best = self._best[record.key.workload_key]
        if record.latency is None or (best is not None and best <= record.latency):
            return False
        self._best[record.key.workload_key] = record.latency
        return True

    def _tell(self, session: Session, seconds: float) -> None:
        job_id = self._work.job.id
        counts = {"trials_done": self.trials_done, "trials_planned": self.trials_planned}
        jobs.set_progress(session, job_id, self._work.lease, **counts)
        data = {**counts, "seconds": round(self.seconds_before + seconds, 3)}
        events.append(session, job_id, EventKind.PROGRESS, data, now=clock.now())

    def _tell_task(self, session: Session, key: str) -> None:
        task: TuningTask = self._by_key[key]
        best = self._best[key]
        data = {
            "position": task.extracted.position,
            "name": task.extracted.name,
            "description": task.extracted.description,
            "trials_done": self._done[key],
            "trials_planned": task.trials_planned,
            "best_latency": best,
            "best_gflops": task.extracted.flop / best / 1e9 if best else None,
        }
        events.append(session, self._work.job.id, EventKind.TASK, data, now=clock.now())
