"""Rounds of trials, each for the task that promises most, until the budget is spent.

Every trial is stored as it comes. A resumed search first stores what engines had journaled, and gives a fresh engine
the history of each task, so that no candidate is measured twice. What another job is searching now is left to it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from domain import errors
from domain.ports import Engine
from domain.tuning_tasks import ExtractedTask
from storage import jobs, tuning_tasks
from tuner.allocation import Allocator, Round
from worker.pipeline import covering, extraction, history, journal, measuring
from worker.pipeline.progress import Progress
from worker.pipeline.work import Work

_HOPELESS_TRIALS = 32
"""A task with so many trials and no valid one among them is left."""
_CRASHES_PER_TASK = 2
_SLACK_SECONDS = 120.0
_QUEUE_SECONDS = 3600.0
"""What a round may wait in a tracker's queue besides."""
_GONE = (errors.EngineCrashed, errors.EngineSilent, errors.EngineTimeout, errors.EngineGarbled)
_UNREACHABLE = (errors.TrackerUnreachable, errors.NoDevice, errors.DeviceLost)


class Search:
    """Goes on from what is stored of the job's plan.

    ``seconds`` is the limit for all attempts together. A patient search waits for tasks that other jobs are searching;
    another one leaves them.
    """

    def __init__(self, work: Work, *, seconds: float | None, patient: bool = True) -> None:
        self._work = work
        self._patient = patient
        self.progress = Progress(work)
        self.progress.recover(seconds=0.0)
        self._limit = seconds
        self._allocator = Allocator(self.progress.tasks)
        self._spent = 0.0
        self._crashes: Counter[str] = Counter()
        self.exhausted: set[str] = set()
        """Workloads with nothing left to search."""
        self.seconds_of: defaultdict[str, float] = defaultdict(float)
        """Spent on each workload by this attempt."""
        self.defaults: dict[str, float] = {}
        """Latency of what an untuned build does, by workload, where it was measured."""
        self._recall_defaults()
        self._left: set[str] = set()
        self._engine: Engine | None = None
        self._warm: set[str] = set()
        self._elsewhere: dict[str, str] = {}
        self._looked = 0.0

    @property
    def seconds(self) -> float:
        """Tuning time of all attempts; waiting for the device or for another job costs nothing."""
        return self.progress.seconds_before + self._spent

    def go_on(self, *, spent: float, seconds: float | None, patient: bool) -> None:
        """With another plan, which is stored, and another limit; other arms have spent the rest of ``spent``."""
        self.progress.reload()
        self.progress.seconds_before = spent - self._spent
        for task in self.progress.tasks:
            key = task.extracted.workload_key
            # Another arm may have the same workload.
            self._allocator.set_planned(key, task.trials_planned, done=self.progress.done(key))
        self._limit, self._patient = seconds, patient
        self._looked = 0.0

    def run(self, *, trials: int | None = None) -> str:
        """Returns what ended the search: ``trials``, ``seconds``, or ``slice`` after as many ``trials`` as given."""
        until = None if trials is None else self.progress.trials_done + trials
        while True:
            self._work.keeper.check()
            self._look_elsewhere()
            chosen = self._allocator.next_round(excluding=self._elsewhere)
            if chosen is not None and self._seconds_left() != 0.0:
                room = chosen.trials if until is None else min(chosen.trials, until - self.progress.trials_done)
                if room <= 0:
                    return "slice"
                with measuring.alone(self._work):
                    self._round(replace(chosen, trials=room))
            elif self._elsewhere and self._patient:
                self._wait()
            else:
                return "trials" if chosen is None else "seconds"

    def _recall_defaults(self) -> None:
        """Those that earlier attempts measured on this host."""
        for entry in journal.entries(self._work):
            if entry.get("default") and entry.get("latencies"):
                self.defaults[entry["workload_key"]] = fmean(entry["latencies"])

    def _seconds_left(self) -> float | None:
        return None if self._limit is None else max(0.0, self._limit - self.seconds)

    def _look_elsewhere(self) -> None:
        """Leave to other jobs what they are searching; come back to what they have left."""
        now = time.monotonic()
        if self._looked and now - self._looked < self._work.settings.cancel_poll_seconds:
            return
        self._looked = now
        wanted = [
            task.extracted.workload_key
            for task in self.progress.tasks
            if task.trials_planned > self.progress.done(task.extracted.workload_key)
        ]
        with self._work.database.reading() as session:
            found = covering.elsewhere(session, self._work, wanted) if wanted else {}
        if self._patient and (self._elsewhere or found):
            # Whoever searches these, or searched them until now, may have done our share.
            self._replan({*self._elsewhere, *found}, without=found)
        planned = {task.extracted.workload_key for task in self.progress.tasks if task.trials_planned}
        self._elsewhere = {key: owner for key, owner in found.items() if key in planned}

    def _replan(self, keys: set[str], *, without: Collection[str]) -> None:
        work = self._work
        extracted = [task.extracted for task in self.progress.tasks]
        with work.database.transaction() as session:
            work.keeper.require(jobs.holds(session, work.job.id, work.lease))
            allotted, self._limit = covering.allot(session, work, extracted, without=without)
            fresh = {task.extracted.workload_key: task.trials_planned for task in allotted}
            changed = [
                replace(task, trials_planned=fresh[task.extracted.workload_key])
                if task.extracted.workload_key in keys
                else task
                for task in self.progress.tasks
            ]
            if changed == self.progress.tasks:
                return
            tuning_tasks.save_plan(session, work.job.id, changed)
        self.progress.reload()
        for key in keys:
            self._allocator.set_planned(key, fresh[key])

    def _wait(self) -> None:
        owners = sorted(set(self._elsewhere.values()))
        self._work.note_once(
            f"waiting for job {', '.join(owners)}, which is searching {len(self._elsewhere)} of this job's tasks"
        )
        time.sleep(self._work.settings.cancel_poll_seconds)

    def _round(self, chosen: Round) -> None:
        key = chosen.workload_key
        before, spent = self.progress.done(key), self._spent
        try:
            with self._clock(key) as started:
                result = self._request(chosen, started)
        except _GONE as error:
            self._crashed(key, error)
            return
        except _UNREACHABLE:
            raise
        except (errors.EngineRequestFailed, errors.InvalidModel) as error:
            self._work.note(f"{self._name(key)} cannot be tuned: {error.message[:500]}")
            self._finished(key, before, exhausted=True)
            return
        queued = min(float(result.get("queue_seconds") or 0.0), self._spent - spent)
        self._spent -= queued
        self.seconds_of[key] -= queued
        self.progress.tell_task(key)
        if result["exhausted"]:
            self.exhausted.add(key)
        self._finished(key, before, exhausted=bool(result["exhausted"]), seconds=self._spent - spent)

    @contextmanager
    def _clock(self, key: str) -> Iterator[float]:
        started = time.monotonic()
        try:
            yield started
        finally:
            self._spent += time.monotonic() - started
            self.seconds_of[key] += time.monotonic() - started

    def _request(self, chosen: Round, started: float) -> dict[str, Any]:
        work, key = self._work, chosen.workload_key
        engine = work.compiler()
        if engine is not self._engine:
            self._engine, self._warm = engine, set()
        options = work.request.measure
        params = {
            **work.build_params(work.tuner),
            "workload_key": key,
            "task": extraction.definition(work, key),
            "trials": chosen.trials,
            "first_trial": chosen.first_trial,
            "measure": asdict(options),
            # Of a task that this engine has met it knows every trial.
            "history": None if key in self._warm else history.write(work, self._task(key)),
            "journal": str(journal.new_file(work)),
            "seconds": self._seconds_left(),
            "runner": work.runner,
        }
        self._warm.add(key)

        def on_event(kind: str, data: dict[str, Any]) -> None:
            if kind == "trial":
                if data.get("default") and data["latencies"]:
                    self.defaults[key] = fmean(data["latencies"])
                self.progress.store(data, seconds=self._spent + time.monotonic() - started)

        timeout = chosen.trials * (2 * options.timeout + options.cooldown_interval + 10) + _SLACK_SECONDS
        timeout += _QUEUE_SECONDS if work.runner else 0.0
        return work.ask(engine, "tune", params, timeout=timeout, on_event=on_event)

    def _finished(self, key: str, before: int, *, exhausted: bool, seconds: float | None = None) -> None:
        done, best = self.progress.done(key), self.progress.best(key)
        hopeless = best is None and done >= _HOPELESS_TRIALS
        if hopeless:
            self.exhausted.add(key)
        if exhausted or hopeless:
            self._left.add(key)
        self._allocator.finished(
            key,
            trials=done - before,
            best_latency=best,
            exhausted=key in self._left,
            seconds=seconds,
            default_latency=self.defaults.get(key),
        )

    def _crashed(self, key: str, error: errors.EngineError) -> None:
        """Go on with a fresh engine, without the task if it is the one that keeps killing it."""
        self._crashes[key] += 1
        if self._crashes.total() > self._work.settings.engine_restarts:
            raise error
        if self._crashes[key] >= _CRASHES_PER_TASK:
            self._left.add(key)
        self._work.note(f"{error.message} while tuning {self._name(key)}; going on with a new engine")
        self.progress.recover(seconds=self._spent)
        self._allocator = Allocator(self.progress.tasks)
        for left in self._left:
            self._allocator.finished(left, trials=0, best_latency=self.progress.best(left), exhausted=True)

    def _task(self, key: str) -> ExtractedTask:
        return next(task.extracted for task in self.progress.tasks if task.extracted.workload_key == key)

    def _name(self, key: str) -> str:
        task = self._task(key)
        return task.description or task.name
