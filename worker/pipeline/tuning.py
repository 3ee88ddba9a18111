"""Stage ``tune``: rounds of trials, each for the task that promises most, until the budget is spent.

Every trial is stored as it comes. A resumed search first stores what engines had journaled, and gives a fresh engine
the history of each task, so that no candidate is measured twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from domain import errors
from domain.ports import Engine
from domain.records import RecordKey
from domain.tuning_tasks import TuningTask
from storage import records
from storage.tables import digest_of
from tuner.allocation import Allocator, Round
from worker.pipeline import journal, measuring
from worker.pipeline.planning import record_identity
from worker.pipeline.progress import Progress
from worker.pipeline.work import Outcome, Work

_HOPELESS_TRIALS = 32
"""A task with so many trials and no valid one among them is left."""
_CRASHES_PER_TASK = 2
_SLACK_SECONDS = 120.0
_GONE = (errors.EngineCrashed, errors.EngineSilent, errors.EngineTimeout, errors.EngineGarbled)


def run(work: Work) -> Outcome:
    """Raises NoValidTrial when every task that was tried failed, and EngineError when engines keep crashing."""
    search = _Search(work)
    ended_by = search.run()
    return _conclude(work, search, ended_by)


class _Search:
    def __init__(self, work: Work) -> None:
        self._work = work
        self.progress = Progress(work)
        self.progress.recover(seconds=0.0)
        self._allocator = Allocator(self.progress.tasks)
        self._spent = 0.0
        self._crashes: Counter[str] = Counter()
        self._left: set[str] = set()
        self._engine: Engine | None = None
        self._warm: set[str] = set()
        self._defaults: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Tuning time of all attempts; waiting for the device costs nothing."""
        return self.progress.seconds_before + self._spent

    def run(self) -> str:
        """Returns what ended the search: ``trials`` or ``seconds``."""
        while (chosen := self._allocator.next_round()) is not None:
            self._work.keeper.check()
            if self._seconds_left() == 0.0:
                return "seconds"
            with measuring.alone(self._work):
                self._round(chosen)
        return "trials"

    def _seconds_left(self) -> float | None:
        limit = self._work.request.budget.seconds
        return None if limit is None else max(0.0, limit - self.seconds)

    def _round(self, chosen: Round) -> None:
        key = chosen.workload_key
        before, spent = self.progress.done(key), self._spent
        try:
            with self._clock() as started:
                result = self._request(chosen, started)
        except _GONE as error:
            self._crashed(key, error)
            return
        except errors.EngineRequestFailed as error:
            if error.engine_code == "invalid_option":
                raise errors.InvalidRequest(error.message, hint=error.hint, details=error.details) from error
            self._work.note(f"{self._name(key)} cannot be tuned: {error.message[:500]}")
            self._finished(key, before, exhausted=True)
            return
        self.progress.tell_task(key)
        self._finished(key, before, exhausted=bool(result["exhausted"]), seconds=self._spent - spent)

    @contextmanager
    def _clock(self) -> Iterator[float]:
        started = time.monotonic()
        try:
            yield started
        finally:
            self._spent += time.monotonic() - started

    def _request(self, chosen: Round, started: float) -> dict[str, Any]:
        engine = self._work.relay()
        if engine is not self._engine:
            self._engine, self._warm = engine, set()
        options = self._work.request.measure
        params = {
            **self._work.compile_params,
            "workload_key": chosen.workload_key,
            "trials": chosen.trials,
            "first_trial": chosen.first_trial,
            "measure": asdict(options),
            "options": asdict(self._work.request.tuner_options),
            "history": self._history(chosen.workload_key),
            "journal": str(journal.new_file(self._work)),
            "seconds": self._seconds_left(),
        }
        self._warm.add(chosen.workload_key)

        def on_event(kind: str, data: dict[str, Any]) -> None:
            if kind == "trial":
                if data.get("default") and data["latencies"]:
                    self._defaults[chosen.workload_key] = fmean(data["latencies"])
                self.progress.store(data, seconds=self._spent + time.monotonic() - started)

        timeout = chosen.trials * (2 * options.timeout + 10) + _SLACK_SECONDS
        return self._work.ask(engine, "tune", params, timeout=timeout, on_event=on_event)

    def _history(self, workload_key: str) -> str | None:
        """Only for a task that this engine has not met yet: of the rest it knows every trial."""
        if workload_key in self._warm:
            return None
        key = RecordKey(workload_key=workload_key, **record_identity(self._work))
        with self._work.database.reading() as session:
            known = records.of_key(session, key)
        # Others' failures may be due to their time limits; their successes need no second measurement.
        own = self._work.job.id
        useful = [record for record in known if record.error is None or record.job_id == own]
        lines = [record.schedule.rstrip("\n") + "\n" for record in useful]
        if not lines:
            return None
        path: Path = self._work.folder / "history" / f"{digest_of(workload_key)[:16]}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines))
        return str(path)

    def _finished(self, key: str, before: int, *, exhausted: bool, seconds: float | None = None) -> None:
        done, best = self.progress.done(key), self.progress.best(key)
        hopeless = best is None and done >= _HOPELESS_TRIALS
        if exhausted or hopeless:
            self._left.add(key)
        self._allocator.finished(
            key,
            trials=done - before,
            best_latency=best,
            exhausted=key in self._left,
            seconds=seconds,
            default_latency=self._defaults.get(key),
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

    def _name(self, key: str) -> str:
        return next(
            task.extracted.description or task.extracted.name
            for task in self.progress.tasks
            if task.extracted.workload_key == key
        )


def _conclude(work: Work, search: _Search, ended_by: str) -> Outcome:
    search.progress.reload()
    tried = [task for task in search.progress.tasks if task.trials_done]
    failed = [task for task in tried if task.best_latency is None]
    for task in failed:
        work.note(f"every trial of {task.extracted.description} failed: {_histogram(task.failures)}")
    if failed and len(failed) == len(tried) and not any(task.best_latency for task in search.progress.tasks):
        raise errors.NoValidTrial(
            "every trial of every tuning task failed", details={"failures": _total(failed), "tasks": _by_name(failed)}
        )
    return {
        "trials": search.progress.trials_done,
        "seconds": search.seconds,
        "ended_by": ended_by,
        "failed_tasks": _by_name(failed),
    }


def _histogram(failures: dict[str, int]) -> str:
    return ", ".join(f"{count} × {kind}" for kind, count in sorted(failures.items()))


def _total(tasks: list[TuningTask]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for task in tasks:
        total.update(task.failures)
    return dict(total)


def _by_name(tasks: list[TuningTask]) -> list[dict[str, Any]]:
    return [
        {"position": task.extracted.position, "name": task.extracted.name, "failures": task.failures} for task in tasks
    ]
