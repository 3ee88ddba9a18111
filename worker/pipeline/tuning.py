"""Stage ``tune``: the search of the strategy that leads, or of several that share the budget slice by slice.

``tuner.search.racing`` decides which strategy gets the next slice. What each has found is in the record store, and how
much it has spent follows from the job's records, so a new attempt continues the same race and measures nothing twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from domain import errors
from domain.artifacts import FailedTask
from domain.records import TrialError
from domain.stage_results import SearchedStrategy, Strategy, TuneResult
from domain.tuning_tasks import Coverage, Effort, ExtractedTask, TuningTask
from storage import jobs, records, tuning_tasks
from tuner.search import planning, racing
from tuner.search.racing import Slice
from worker.pipeline import recovery, reuse
from worker.pipeline.context import Work
from worker.pipeline.search import leading, strategies
from worker.pipeline.search.progress import Progress
from worker.pipeline.search.rounds import Search

_DROPPED = "engines rejected its remaining tasks or crashed on them"
_EXHAUSTED = "its search space is exhausted"
_COVERED = "earlier searches cover all of its tasks"
_UNTUNABLE = "none of its tuning tasks could be tuned"
_LOOK = "see the trials' error messages (tunesmith records export, or GET /v1/records?job=JOB)"
_HINTS = {
    TrialError.BUILD_ERROR: f"Every candidate failed to compile: {_LOOK}; another tuner or target may help.",
    TrialError.BUILD_TIMEOUT: "No candidate was built in time: raise timeout, or lower n_parallel on a busy machine.",
    TrialError.RUN_ERROR: f"Every candidate failed while it ran: {_LOOK}.",
    TrialError.RUN_TIMEOUT: "None was measured in time: raise timeout, or lower number, repeat or min_repeat_ms.",
    TrialError.INVALID_SCHEDULE: "No schedule is valid for the operator: another tuner or layout may help.",
    TrialError.WRONG_RESULT: "Every candidate gave wrong results: use another tuner.",
    TrialError.WRONG_DEVICE: "The devices cannot run code for this target: correct the target or the device key.",
    TrialError.DEVICE_LOST: "The devices were lost: see GET /v1/devices, and retry the job when they are back.",
}
_UNKNOWN = f"See the engine log for the first error (tunesmith logs JOB); {_LOOK}."


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """The arm that leads in the end, and what its search came to."""

    work: Work
    search: Search
    ended_by: str
    broken: bool = False
    """Whether the search failed, and was not run to its end."""
    entries: list[_Entry]


@dataclass(kw_only=True)
class _Entry:
    """What one arm has spent and found."""

    arm: Strategy
    work: Work
    extracted: list[ExtractedTask] = field(default_factory=list)
    trials: int = 0
    seconds: float = 0.0
    estimate: float | None = None
    verdict: str = ""
    search: Search | None = None

    def reckon(self) -> None:
        # The untuned build is not in a narrower precision: the default trial of an operator is no part of it then.
        same = self.search is not None and self.arm.precision is None
        self.estimate = strategies.estimate(
            self.work, self.extracted, self.search.defaults if self.search and same else {}
        )

    def result(self) -> SearchedStrategy:
        return SearchedStrategy(
            tuner=self.arm.tuner,
            layout=self.arm.layout,
            precision=self.arm.precision,
            trials=self.trials,
            seconds=self.seconds,
            estimate=self.estimate,
            verdict=self.verdict,
        )

    def sentence(self, *, trials: int, seconds: float) -> str:
        spent = f"{self.arm.name}: {trials} trials in {seconds:.0f} s"
        if self.estimate is None:
            return f"{spent}, none valid."
        return f"{spent}; estimated model latency {self.estimate * 1e3:.3g} ms."


def _race(work: Work, raced: Sequence[Strategy]) -> _Ended:
    """Raises what the leading arm's search raises, LeaseLost, Canceled."""
    return _Contest(work, raced).run()


class _Contest:
    def __init__(self, work: Work, raced: Sequence[Strategy]) -> None:
        self._work = work
        self._budget = work.request.budget
        self._limit = _limit(work, raced)
        self._entries = {arm.name: _Entry(arm=arm, work=strategies.view(work, arm)) for arm in raced}
        self._race = racing.Race(list(self._entries), impression=racing.impression(self._budget))
        self._failure: errors.TunesmithError | None = None
        self._seconds = Progress(work).seconds_before
        self._trials = 0
        """Of all arms; those of a workload that two of them share are trials of either, and count once here."""
        self._recall()

    def run(self) -> _Ended:
        while (chosen := self._race.next_slice(self._left())) is not None:
            self._spend(self._entries[chosen.arm], chosen)
        for name, entry in self._entries.items():
            entry.verdict = entry.verdict or self._race.verdict(name)
        return self._finish()

    def _recall(self) -> None:
        """What earlier attempts spent on each arm, and came to."""
        with self._work.database.reading() as session:
            spent = records.of_job(session, self._work.job.id)
        self._trials = len(spent)
        for entry in self._entries.values():
            known = reuse.known(entry.work)
            own = {task.workload_key for task in known or ()}
            entry.trials = sum(record.key.workload_key in own for record in spent)
            if known and entry.trials:
                entry.extracted = known
                entry.seconds = self._seconds * entry.trials / len(spent)
                self._begin(entry)
                entry.reckon()
                self._tell(entry)

    def _spend(self, entry: _Entry, chosen: Slice) -> None:
        name, work = entry.arm.name, self._work
        trials, seconds = entry.trials, entry.seconds
        try:
            ended_by = self._search(entry, chosen) if self._enter(entry) else ""
        except errors.TunesmithError as error:
            recovery.forgive(work, error)
            self._failure = self._failure or error
            self._race.end(name, f"failed: {error.message[:300].rstrip('.')}")
            ended_by = ""
        if entry.extracted:
            entry.reckon()
            self._tell(entry)
        if ended_by == "trials" or (ended_by and entry.trials == trials):
            self._race.end(name, _why_ended(entry))
        if ended_by:
            work.note(entry.sentence(trials=entry.trials - trials, seconds=entry.seconds - seconds))

    def _enter(self, entry: _Entry) -> bool:
        """Whether the arm has anything to search. Raises EngineError."""
        if not entry.extracted:
            entry.extracted = reuse.tasks_of(entry.work)
            self._begin(entry)
        keys = {task.workload_key for task in entry.extracted}
        for other in self._entries.values():
            if other is not entry and other.search and keys == {task.workload_key for task in other.extracted}:
                self._race.end(entry.arm.name, f"its tuning tasks are the same as those of {other.arm.name}")
                return False
        if not keys:
            self._race.end(entry.arm.name, "it finds nothing to tune in the model")
        return bool(keys)

    def _begin(self, entry: _Entry) -> None:
        untuned = self._work.results.baseline.engines.get(entry.work.engine)
        self._race.begin(entry.arm.name, untuned if untuned is not None else math.inf)

    def _search(self, entry: _Entry, chosen: Slice) -> str:
        own = self._take_up(entry)
        search = self._resume(entry, seconds=self._until(entry, own, share=chosen.share), patient=False)
        try:
            return search.run(trials=self._trials_of(chosen))
        finally:
            self._account(entry, search)

    def _until(self, entry: _Entry, own: float | None, *, share: float) -> float | None:
        """Seconds of all arms at which to stop: after a share of the budget, and after the arm's ``own`` seconds."""
        limits = []
        if self._limit is not None:
            limits.append(min(self._limit, self._seconds + share * self._limit))
        if own is not None:
            limits.append(self._seconds + max(0.0, own - entry.seconds))
        return min(limits, default=None)

    def _trials_of(self, chosen: Slice) -> int | None:
        """At most what is left: a share is no exact number."""
        if self._budget.trials is None:
            return None
        return min(math.ceil(chosen.share * self._budget.trials), self._budget.trials - self._trials)

    def _take_up(self, entry: _Entry) -> float | None:
        """Make the arm the leading one, with a plan for what is left; returns the seconds of its tasks' shares."""
        strategies.lead(self._work, entry.arm)
        work = entry.work
        with work.database.transaction() as session:
            work.keeper.require(jobs.holds(session, work.job.id, work.lease))
            planned, seconds = reuse.allot(session, work, entry.extracted)
            tuning_tasks.save_plan(session, work.job.id, planned)
        return seconds

    def _resume(self, entry: _Entry, *, seconds: float | None, patient: bool) -> Search:
        if entry.search is None:
            entry.search = Search(entry.work, seconds=seconds)
            # What only the journal knew is the arm's too.
            self._count(entry, entry.search)
        entry.search.go_on(spent=self._seconds, seconds=seconds, patient=patient)
        return entry.search

    def _account(self, entry: _Entry, search: Search) -> None:
        entry.seconds += search.seconds - self._seconds
        self._seconds = search.seconds
        search.progress.reload()
        self._count(entry, search)

    def _count(self, entry: _Entry, search: Search) -> None:
        entry.trials = sum(task.trials_done for task in search.progress.tasks)
        self._trials = search.progress.trials_done

    def _tell(self, entry: _Entry) -> None:
        self._race.tell(entry.arm.name, spent=self._share(entry.trials, entry.seconds), seconds=entry.estimate)

    def _left(self) -> float:
        return 1.0 - self._share(self._trials, self._seconds)

    def _share(self, trials: int, seconds: float) -> float:
        """Of the budget, by whichever limit is nearer."""
        shares = [0.0]
        if self._budget.trials is not None:
            shares.append(trials / self._budget.trials)
        if self._limit is not None:
            shares.append(seconds / self._limit if self._limit else 1.0)
        return min(1.0, max(shares))

    def _finish(self) -> _Ended:
        """With what promises most, on whatever is left, waiting for what other jobs search."""
        found = [entry for entry in self._entries.values() if entry.extracted]
        if not found and self._failure is None:
            # The budget had nothing for anybody.
            found = list(self._entries.values())[:1]
            self._enter(found[0])
        if self._failure is not None and all(entry.estimate is None for entry in found):
            raise self._failure
        best = min(found, key=lambda entry: math.inf if entry.estimate is None else entry.estimate)
        own = self._take_up(best)
        search = self._resume(best, seconds=self._until(best, own, share=1.0), patient=True)
        failed = best.verdict.startswith("failed")
        ended_by = "trials" if failed else search.run()
        self._account(best, search)
        best.reckon()
        best.verdict = best.verdict if failed else ""
        return _Ended(
            work=best.work, search=search, ended_by=ended_by, broken=failed, entries=list(self._entries.values())
        )


def _limit(work: Work, raced: Sequence[Strategy]) -> float | None:
    """Seconds for all arms together.

    The plan takes off what others have spent on the leading arm's tasks, which is no reason to search a narrower
    precision less: then each arm is held to what is left of its own tasks' shares.
    """
    narrower = any(strategy.precision for strategy in raced)
    return work.request.budget.seconds if narrower else work.results.plan.budget_seconds


def _why_ended(entry: _Entry) -> str:
    if entry.trials:
        return _DROPPED if entry.search is not None and entry.search.dropped else _EXHAUSTED
    return _UNTUNABLE if entry.estimate is None else _COVERED


def run(work: Work) -> TuneResult:
    """Raises NoValidTrial when every task that was tried failed, and EngineError when engines keep crashing."""
    leading.take_over(work)
    raced = work.results.plan.strategies
    ended = _race(work, raced) if len(raced) > 1 else _alone(work, raced[0])
    # Before the efforts are stored: a search that found nothing covers nothing, so a retry that follows the failure's
    # hint still searches.
    failed = _failed_tasks(ended.work, ended.search)
    _keep_efforts(ended)
    return TuneResult(
        tuner=ended.work.tuner,
        strategies=tuple(entry.result() for entry in ended.entries),
        helpers=leading.settle(work),
        trials=ended.search.progress.trials_done,
        seconds=ended.search.seconds,
        ended_by=ended.ended_by,
        failed_tasks=failed,
        choice=tuple(_choice(ended)) if len(raced) > 1 else (),
    )


def _alone(work: Work, arm: Strategy) -> _Ended:
    search = Search(work, seconds=work.results.plan.budget_seconds)
    ended_by = search.run()
    search.progress.reload()
    tasks = search.progress.tasks
    entry = _Entry(
        arm=arm,
        work=work,
        extracted=[task.extracted for task in tasks],
        trials=sum(task.trials_done for task in tasks),
        seconds=search.seconds,
        search=search,
    )
    entry.reckon()
    return _Ended(work=work, search=search, ended_by=ended_by, entries=[entry])


def _choice(ended: _Ended) -> list[str]:
    """One sentence for each arm."""
    said = []
    for entry in ended.entries:
        if not entry.trials and entry.verdict:
            said.append(f"{entry.arm.name}: {entry.verdict}.")
            continue
        sentence = entry.sentence(trials=entry.trials, seconds=entry.seconds)
        said.append(f"{sentence[:-1]}; {entry.verdict}." if entry.verdict else sentence)
    return said


def _keep_efforts(ended: _Ended) -> None:
    """So that the next job knows how hard each task was searched, and jobs at work stop waiting for this one.

    A share of what ended the search counts as spent: the search would not have given the task more. Of what engines
    refused or died of, only what was spent does.
    """
    work, search, ended_by = ended.work, ended.search, ended.ended_by
    tasks = search.progress.tasks
    extracted = [task.extracted for task in tasks]
    with work.database.transaction() as session:
        work.keeper.require(jobs.holds(session, work.job.id, work.lease))
        known = reuse.coverage(session, work, extracted)
        now = {task.extracted.workload_key: _searched(search, task, known) for task in tasks}
        spent = {task.extracted.workload_key: _spent(search, task, known) for task in tasks}
        options = work.request.tuner_options
        shares = planning.shares(extracted, work.request.budget, covered=now, n_trial=options.n_trial)
        # What no trials limit is searched for as long as that promises something.
        sated = work.request.budget.trials is None
        efforts = {}
        for task, share in zip(tasks, shares, strict=True):
            key = task.extracted.workload_key
            if not task.trials_planned:
                continue
            if ended.broken or key in search.dropped:
                efforts[key] = spent[key]
                continue
            efforts[key] = Effort(
                trials=max(spent[key].trials, share.trials if ended_by == "trials" else 0.0),
                seconds=max(spent[key].seconds, share.seconds if ended_by == "seconds" or sated else 0.0),
            )
        tuning_tasks.set_effort(session, work.job.id, efforts)


def _searched(search: Search, task: TuningTask, known: Mapping[str, Coverage]) -> Coverage:
    """What is known of a task now that the search has ended, its own trials and those of others."""
    before = known[task.extracted.workload_key]
    return replace(before, trials=task.trials_done + before.trials, effort=_spent(search, task, known))


def _spent(search: Search, task: TuningTask, known: Mapping[str, Coverage]) -> Effort:
    """How hard a task was searched now that the search has ended, here and by others."""
    key = task.extracted.workload_key
    trials = task.trials_done + known[key].trials
    if key in search.exhausted or trials >= task.extracted.space_size:
        return Effort(trials=math.inf, seconds=math.inf)
    before = known[key].effort or Effort(trials=0.0, seconds=0.0)
    return Effort(trials=float(trials), seconds=before.seconds + search.seconds_of[key])


def _failed_tasks(work: Work, search: Search) -> tuple[FailedTask, ...]:
    """Tasks without a valid trial, each noted. Raises NoValidTrial when there is no valid trial of any task."""
    tried = [task for task in search.progress.tasks if task.trials_done]
    failed = [task for task in tried if task.best_latency is None]
    for task in failed:
        what = f"{task.extracted.description} failed: {_histogram(task.failures)}"
        work.note(f"every trial of {what}. {hint_of(task.failures)}")
    if failed and len(failed) == len(tried) and not any(task.best_latency for task in search.progress.tasks):
        raise errors.NoValidTrial(
            f"every trial of every tuning task failed: {_histogram(_total(failed))}",
            hint=hint_of(_total(failed)),
            details={"failures": _total(failed), "tasks": _by_name(failed)},
        )
    return tuple(
        FailedTask(
            position=task.extracted.position,
            name=task.extracted.name,
            failures=task.failures,
            hint=hint_of(task.failures),
        )
        for task in failed
    )


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


def hint_of(failures: Mapping[str, int]) -> str:
    """For the most frequent of the failures, which go by ``TrialError`` value."""
    worst = max(failures, key=lambda kind: failures[kind], default=TrialError.UNKNOWN.value)
    return next((hint for kind, hint in _HINTS.items() if kind == worst), _UNKNOWN)
