"""Run rounds of trials, each for the most promising task, until the budget is spent.

Every trial is stored as it arrives. A resumed search first stores the trials of the spool, and gives a new engine the
history of each task, so that no candidate is measured twice. Tasks that another job is searching are left to it.
Meanwhile rounds are offered to other workers that could help; no task is ever in two rounds at once.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from domain import errors
from domain.jobs import RunnerKind
from domain.ports import Canceled, Engine
from domain.shared_rounds import RoundState, SharedRound
from domain.tuning_tasks import ExtractedTask
from storage import tuning_tasks
from tuner.search.allocation import Allocator, Round
from worker.pipeline import reuse
from worker.pipeline.context import JobContext
from worker.pipeline.search import spool
from worker.pipeline.search.candidates import Candidates
from worker.pipeline.search.leading import Sharing
from worker.pipeline.search.progress import SearchProgress

_log = logging.getLogger(__name__)

_HOPELESS_TRIALS = 32
"""Trials after which a task without a valid one is given up."""
_CRASHES_PER_TASK = 2
TOTAL = "total_seconds"
"""What ended a search: the job's total limit, not the budget."""
_WAIT_SECONDS = 0.1
"""Pause between two looks for finished rounds while there is nothing else to do."""
_GONE = (
    errors.EngineCrashed,
    errors.EngineSilent,
    errors.EngineTimeout,
    errors.EngineOutOfMemory,
    errors.EngineGarbled,
)
_UNREACHABLE = (errors.TrackerUnreachable, errors.NoDevice, errors.DeviceLost)

_SLACK_SECONDS = 120.0
_QUEUE_SECONDS = 3600.0
"""Time that a round may wait in a tracker's queue."""


def round_timeout(context: JobContext, trials: int) -> float:
    """Seconds after which an engine that runs a round of that many trials counts as stuck."""
    options = context.request.measure
    seconds = trials * (2 * options.timeout + options.cooldown_interval + 10) + _SLACK_SECONDS
    return seconds + (_QUEUE_SECONDS if context.runner else 0.0)


class StrategySearch:
    """The search of one strategy, which continues from the job's stored plan and trials.

    ``seconds`` is the limit for all attempts together, ``untuned`` are operators' seconds in the untuned build, by
    workload.
    """

    def __init__(
        self, context: JobContext, *, seconds: float | None, untuned: Mapping[str, float] | None = None
    ) -> None:
        self._context = context
        self._untuned = untuned or {}
        self._waits_for_others = True
        """Whether it waits for tasks that other jobs are searching; otherwise it leaves them out."""
        self.progress = SearchProgress(context)
        self.progress.recover(seconds=0.0)
        self._limit = seconds
        self._allocator = Allocator(self.progress.tasks, untuned=self._untuned)
        self._spent = 0.0
        self._crashes: Counter[str] = Counter()
        self.exhausted: set[str] = set()
        """Workloads with nothing left to search."""
        self._hopeless: set[str] = set()
        """Workloads given up without a valid trial; another search may find one."""
        self.seconds_of: defaultdict[str, float] = defaultdict(float)
        """Seconds that this attempt spent on each workload."""
        self.defaults: dict[str, float] = {}
        """Latency of the default schedule, by workload, where it was measured."""
        self._recall_defaults()
        self._left: set[str] = set()
        self._engine: Engine | None = None
        self._warm: set[str] = set()
        self._elsewhere: dict[str, str] = {}
        self._looked = 0.0
        self._sharing = Sharing(context)
        self._candidates = Candidates(context, [task.extracted.workload_key for task in self.progress.tasks])
        self._own: Round | None = None
        """The round that this worker runs itself."""
        self._until: int | None = None
        self._waited = self._helped = 0.0
        """Seconds spent waiting for helpers, and seconds of their rounds meanwhile."""
        self._clock_started: float | None = None

    @property
    def seconds(self) -> float:
        """Tuning time of all attempts, without waiting for the device or for other jobs."""
        return self.progress.seconds_before + self._spent

    @property
    def explored(self) -> bool:
        """Whether all tasks that could matter had their first rounds, and none is left to another job."""
        return not self._elsewhere and self._allocator.is_explored()

    def go_on(self, *, spent: float, seconds: float | None, waits_for_others: bool) -> None:
        """Continue with the plan in the database and another limit; ``spent`` includes other strategies' seconds."""
        self.progress.reload()
        self.progress.seconds_before = spent - self._spent
        for task in self.progress.tasks:
            key = task.extracted.workload_key
            # Another strategy may share workloads with this one.
            self._allocator.set_planned(key, task.trials_planned, done=self.progress.done(key))
        self._limit, self._waits_for_others = seconds, waits_for_others
        self._looked = 0.0

    def run(self, *, trials: int | None = None) -> str:
        """Search; return what ended it: ``trials``, ``seconds``, the job's ``total_seconds``, or ``slice`` after the
        given number of ``trials``."""
        self._until = None if trials is None else self.progress.trials_done + trials
        try:
            while (ended := self._step()) is None:
                pass
        except Exception:
            self._sharing.abandon()
            raise
        self.progress.report(at_once=True)
        return ended

    def _step(self) -> str | None:
        """Run a round, or wait for rounds of others; return what ended the search, if it has ended."""
        self._context.heartbeat.check()
        self._look_elsewhere()
        self._share()
        self._discount_queue()
        chosen, ended = self._next_round()
        if chosen is not None:
            # Reserved: while this worker waits for the device, other rounds are offered to helpers.
            self._own = chosen
            try:
                with self._context.exclusive_device(canceled=self._attend):
                    self._round(chosen)
            except errors.TimeLimit:
                # The next look for a round ends the search.
                self.progress.recover(seconds=self._spent)
            finally:
                self._own = None
        elif self._sharing.out:
            self._bring_in(everything=ended in ("seconds", TOTAL))
        elif ended == "trials" and self._elsewhere and self._waits_for_others:
            self._wait()
        else:
            return ended
        return None

    def _next_round(self, *, excluding: Collection[str] = ()) -> tuple[Round | None, str]:
        """The most promising round that is not offered or running; else the reason why there is none."""
        out = {**self._sharing.out, **({self._own.workload_key: self._own.trials} if self._own else {})}
        chosen = self._allocator.next_round(excluding={*self._elsewhere, *excluding}, out=out)
        if self._context.limit.left_to_search == 0.0 and (chosen is not None or self._elsewhere):
            return None, TOTAL
        if chosen is None:
            return None, "trials"
        if self._seconds_left() == 0.0:
            return None, "seconds"
        left = chosen.trials if self._until is None else self._until - self._spoken_for(out)
        return (replace(chosen, trials=min(chosen.trials, left)), "") if left > 0 else (None, "slice")

    def _spoken_for(self, out: Mapping[str, int]) -> int:
        """Trials done, plus those that open rounds may still spend."""
        firsts = {
            **self._sharing.first_trials,
            **({self._own.workload_key: self._own.first_trial} if self._own else {}),
        }
        spent = sum(self.progress.done(key) - first for key, first in firsts.items())
        return self.progress.trials_done - spent + sum(out.values())

    def _attend(self) -> bool:
        """Whether to stop; called several times a second while waiting for an engine or the device."""
        if self._context.canceled():
            return True
        try:
            self._share()
            self.progress.report()
        except SQLAlchemyError:
            _log.warning("job %s: the database does not respond", self._context.job.id, exc_info=True)
        return False

    def _share(self) -> None:
        """Process finished rounds of helpers, and offer more."""
        if not self._sharing.is_due():
            return
        ended = self._sharing.look()
        self.progress.learn_of(self._sharing.out, seconds=self._spent_now())
        for each in ended:
            self._take_in(each)
        for _ in range(self._sharing.wanted()):
            chosen, _ended = self._next_round(excluding=self._sharing.kept | self._candidates.waiting)
            if chosen is None:
                break
            self._sharing.offer(chosen, seconds=self._seconds_left())

    def _take_in(self, shared: SharedRound) -> None:
        """Process a helper's round; for a lost round, count what it had stored by then."""
        key, first = shared.offer.workload_key, shared.offer.first_trial
        succeeded = shared.state is RoundState.DONE and shared.failure is None
        if shared.failure is not None:
            self._context.note(f"{self._name(key)} failed on {shared.worker_id}: {shared.failure.message[:500]}")
        if self.progress.done(key) > first:
            self.progress.touch(key)
        # Nothing below can fail, so no round is counted twice.
        self._sharing.drop(shared)
        self._helped += self._waited if shared.seconds is None else shared.seconds
        self.seconds_of[key] += shared.seconds or 0.0
        if shared.default_latency is not None:
            self.defaults[key] = shared.default_latency
        if succeeded and shared.exhausted:
            self.exhausted.add(key)
        if succeeded or self.progress.done(key) > first:
            self._finished(key, first, exhausted=succeeded and bool(shared.exhausted), seconds=shared.seconds)

    def _bring_in(self, *, everything: bool) -> None:
        """Without a round of its own, withdraw an unclaimed one, or wait for helpers."""
        if not self._sharing.withdraw(everything=everything):
            spent = self._spent
            with self._clock():
                time.sleep(_WAIT_SECONDS)
            self._waited += self._spent - spent

    def _discount_queue(self) -> None:
        """Do not count as tuning time what this worker waited for helpers that waited in a tracker's queue."""
        if self._sharing.out:
            return
        if self._context.request.runner is RunnerKind.RPC:
            self._spent -= max(0.0, self._waited - self._helped)
        self._waited = self._helped = 0.0

    def _recall_defaults(self) -> None:
        """Read the default latencies that earlier attempts measured on this host."""
        for entry in spool.trials(self._context):
            if entry.get("default") and entry.get("latencies"):
                self.defaults[entry["workload_key"]] = fmean(entry["latencies"])

    def _seconds_left(self) -> float | None:
        spent = self.progress.seconds_before + self._spent_now()
        limit = self._context.limit.cut_seconds(self._limit, spent=spent)
        return None if limit is None else max(0.0, limit - spent)

    def _spent_now(self) -> float:
        return self._spent + (time.monotonic() - self._clock_started if self._clock_started is not None else 0.0)

    def _look_elsewhere(self) -> None:
        """Leave tasks to jobs that are searching them; take back those that they have left."""
        now = time.monotonic()
        if self._looked and now - self._looked < self._context.settings.cancel_poll_seconds:
            return
        self._looked = now
        wanted = [
            task.extracted.workload_key
            for task in self.progress.tasks
            if task.trials_planned > self.progress.done(task.extracted.workload_key)
        ]
        with self._context.database.reading() as session:
            found = reuse.elsewhere(session, self._context, wanted) if wanted else {}
        if self._waits_for_others and (self._elsewhere or found):
            # The jobs that search these, or did until now, may have done this job's share.
            self._replan({*self._elsewhere, *found}, without=found)
        planned = {task.extracted.workload_key for task in self.progress.tasks if task.trials_planned}
        self._elsewhere = {key: owner for key, owner in found.items() if key in planned}

    def _replan(self, keys: set[str], *, without: Collection[str]) -> None:
        context = self._context
        extracted = [task.extracted for task in self.progress.tasks]
        with context.transaction() as session:
            allotted, self._limit = reuse.allot(session, context, extracted, without=without)
            fresh = {task.extracted.workload_key: task.trials_planned for task in allotted}
            changed = [
                replace(task, trials_planned=fresh[task.extracted.workload_key])
                if task.extracted.workload_key in keys
                else task
                for task in self.progress.tasks
            ]
            if changed == self.progress.tasks:
                return
            tuning_tasks.save_plan(session, context.job.id, changed)
        self.progress.reload()
        for key in keys:
            self._allocator.set_planned(key, fresh[key])

    def _wait(self) -> None:
        owners = sorted(set(self._elsewhere.values()))
        self._context.note_once(
            f"waiting for job {', '.join(owners)}, which is searching {len(self._elsewhere)} of this job's tasks"
        )
        time.sleep(self._context.settings.cancel_poll_seconds)

    def _round(self, chosen: Round) -> None:
        key = chosen.workload_key
        before, spent = self.progress.done(key), self._spent
        try:
            with self._clock(key):
                result = self._request(chosen)
        except _GONE as error:
            self._crashed(key, error)
            return
        except Canceled:
            # The engine has ended; store its finished trials before another worker can claim the job.
            self.progress.recover(seconds=self._spent)
            raise
        except _UNREACHABLE:
            raise
        except (errors.EngineRequestFailed, errors.InvalidModel) as error:
            if isinstance(error, errors.EngineRequestFailed) and error.engine_code == "disk_full":
                raise
            self._context.note(f"{self._name(key)} cannot be tuned: {error.message[:500]}")
            self._finished(key, before, exhausted=True)
            return
        queued = min(float(result.get("queue_seconds") or 0.0), self._spent - spent)
        self._spent -= queued
        self.seconds_of[key] -= queued
        self.progress.touch(key)
        if result["exhausted"]:
            self.exhausted.add(key)
        self._finished(key, before, exhausted=bool(result["exhausted"]), seconds=self._spent - spent)

    @property
    def dropped(self) -> set[str]:
        """Workloads that engines rejected or crashed on."""
        return self._left - self.exhausted - self._hopeless

    @contextmanager
    def _clock(self, key: str | None = None) -> Iterator[None]:
        """Count tuning time, for one workload or for waiting on helpers."""
        self._clock_started = started = time.monotonic()
        try:
            yield
        finally:
            self._clock_started = None
            self._spent += time.monotonic() - started
            if key is not None:
                self.seconds_of[key] += time.monotonic() - started

    def _request(self, chosen: Round) -> dict[str, Any]:
        context, key = self._context, chosen.workload_key
        engine = context.compiler()
        if engine is not self._engine:
            self._engine, self._warm = engine, set()
        strange = self._sharing.is_strange(key)
        params = {
            **context.build_params(context.tuner),
            "workload_key": key,
            "task": reuse.definition(context, key),
            "trials": chosen.trials,
            "first_trial": chosen.first_trial,
            "measure": asdict(context.request.measure),
            # The engine that searched a task last knows all of its trials.
            "history": None if key in self._warm and not strange else reuse.write(context, self._task(key)),
            "fresh": strange,
            "spool": str(spool.new_file(context)),
            "seconds": self._seconds_left(),
            "runner": context.runner,
            **self._candidates.of_round(key, chosen.trials),
        }
        self._warm.add(key)
        self._sharing.searched(key)

        def on_event(kind: str, data: dict[str, Any]) -> None:
            if kind == "trial":
                if data.get("default") and data["latencies"]:
                    self.defaults[key] = fmean(data["latencies"])
                self.progress.store(data, seconds=self._spent_now())
            elif kind == "candidate":
                self._candidates.on_event(data)

        timeout = round_timeout(context, chosen.trials)
        return context.ask(engine, "tune", params, timeout=timeout, on_event=on_event, canceled=self._attend)

    def _finished(self, key: str, before: int, *, exhausted: bool, seconds: float | None = None) -> None:
        done, best = self.progress.done(key), self.progress.best(key)
        if best is None and done >= _HOPELESS_TRIALS:
            self._hopeless.add(key)
        if exhausted or key in self._hopeless:
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
        """Continue with a new engine, without the task if it keeps crashing the engine."""
        self._candidates.on_crash()
        self._crashes[key] += 1
        if self._crashes.total() > self._context.settings.engine_restarts:
            raise error
        if self._crashes[key] >= _CRASHES_PER_TASK:
            self._left.add(key)
        self._context.note(f"{error.message} while tuning {self._name(key)}; continuing with a new engine")
        self.progress.recover(seconds=self._spent)
        # Helpers may have stored trials since the tasks were read.
        self.progress.reload()
        if self._nothing_left():
            raise error
        # Rounds that helpers are running are counted when they finish.
        firsts = self._sharing.first_trials
        self._allocator = Allocator(
            [
                replace(task, trials_done=firsts.get(task.extracted.workload_key, task.trials_done))
                for task in self.progress.tasks
            ],
            untuned=self._untuned,
        )
        for left in self._left:
            self._allocator.finished(left, trials=0, best_latency=self.progress.best(left), exhausted=True)

    def _nothing_left(self) -> bool:
        """Whether engines crashed on every task, and no task has a valid trial."""
        tasks = self.progress.tasks
        tried = [task.extracted.workload_key for task in tasks if task.trials_planned]
        return self._left.issuperset(tried) and all(
            self.progress.best(task.extracted.workload_key) is None for task in tasks
        )

    def _task(self, key: str) -> ExtractedTask:
        return next(task.extracted for task in self.progress.tasks if task.extracted.workload_key == key)

    def _name(self, key: str) -> str:
        task = self._task(key)
        return task.description or task.name
