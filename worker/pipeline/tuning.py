"""Stage ``tune``: search with one strategy, or with several that share the budget slice by slice.

``tuner.search.racing`` decides which strategy gets the next slice. Their results are in the record store, and their
spending follows from the job's records, so a new attempt continues the same race and measures nothing twice.
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
from storage import records, tuning_tasks
from tuner.search import planning, racing
from tuner.search.racing import Slice
from worker.pipeline import in_place, recovery, reuse
from worker.pipeline.context import JobContext
from worker.pipeline.search import leading, mixing, strategies
from worker.pipeline.search.progress import SearchProgress
from worker.pipeline.search.rounds import TOTAL, StrategySearch

SETTLED = "settled"
"""What ended a search: no strategy expected more."""
_MUCH = 0.05
"""Share of the budget from which the report says that it was not used."""
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
class _RaceResult:
    """The strategy that leads in the end, and its search."""

    context: JobContext
    search: StrategySearch
    ended_by: str
    broken: bool = False
    """Whether the search failed before its end."""
    candidates: list[_Candidate]


@dataclass(kw_only=True)
class _Candidate:
    """One strategy, with what its search has spent and found."""

    strategy: Strategy
    context: JobContext
    extracted: list[ExtractedTask] = field(default_factory=list)
    trials: int = 0
    seconds: float = 0.0
    estimate: float | None = None
    verdict: str = ""
    search: StrategySearch | None = None
    untuned: dict[str, float] = field(default_factory=dict)
    """Seconds of operators in the untuned build, by workload."""
    base: _Candidate | None = None
    """The strategy whose build this one's records complete."""

    def take(self, extracted: Sequence[ExtractedTask]) -> None:
        """Take these tasks to search, but none beside another strategy whose gain would remain unknown."""
        self.untuned = in_place.seconds(self.context, extracted)
        self.extracted = [task for task in extracted if self.base is None or task.workload_key in self.untuned]

    def reckon(self) -> None:
        if self.base is not None:
            self.estimate = mixing.estimate(self.context, self.extracted, self.untuned, self.base.estimate)
            return
        # Default trials in a narrower precision say nothing about the untuned build, which is not in that precision.
        same = self.search is not None and self.strategy.precision is None
        defaults = self.search.defaults if self.search and same else {}
        # Times inside the network for all engines alike; only AutoTVM measures defaults by themselves.
        self.estimate = strategies.estimate(self.context, self.extracted, {**defaults, **self.untuned})

    def result(self) -> SearchedStrategy:
        return SearchedStrategy(
            tuner=self.strategy.tuner,
            layout=self.strategy.layout,
            precision=self.strategy.precision,
            free_layout=self.strategy.free_layout,
            beside=self.strategy.beside,
            trials=self.trials,
            seconds=self.seconds,
            estimate=self.estimate,
            verdict=self.verdict,
        )

    def sentence(self, *, trials: int, seconds: float) -> str:
        spent = f"{self.strategy.name}: {trials} trials in {seconds:.0f} s"
        if self.estimate is None:
            return f"{spent}, none valid."
        return f"{spent}; estimated model latency {self.estimate * 1e3:.3g} ms."


class _TunerSelection:
    def __init__(self, context: JobContext, raced: Sequence[Strategy], reserves: Sequence[Strategy]) -> None:
        self._context = context
        self._budget = context.request.budget
        self._seconds = SearchProgress(context).seconds_before
        self._whole = strategies.limit_seconds(context)
        self._limit = context.limit.cut_seconds(self._whole, spent=self._seconds)
        self._candidates = {
            strategy.name: _Candidate(strategy=strategy, context=strategies.view(context, strategy))
            for strategy in (*raced, *reserves)
        }
        self._race = racing.Race(
            list(self._candidates),
            impression=racing.impression(context.limit.cut(self._budget)),
            reserves={strategy.name for strategy in reserves},
            due={strategy.name: mixing.DUE for strategy in reserves if strategy.beside},
        )
        for candidate in self._candidates.values():
            candidate.base = self._base_of(candidate.strategy)
        self._failure: errors.TunesmithError | None = None
        self._trials = 0
        """Trials of all strategies; those of a shared workload count once."""
        self._recall()

    def _base_of(self, strategy: Strategy) -> _Candidate | None:
        plain = (each for each in self._candidates.values() if each.strategy == Strategy(tuner=each.strategy.tuner))
        return next((each for each in plain if each.strategy.tuner is strategy.beside), None)

    def run(self) -> _RaceResult:
        """Raises what the leading strategy's search raises, LeaseLost, Canceled."""
        while (chosen := self._race.next_slice(self._left())) is not None:
            self._spend(self._candidates[chosen.strategy], chosen)
        for name, candidate in self._candidates.items():
            candidate.verdict = candidate.verdict or self._race.verdict(name)
        return self._finish()

    def _recall(self) -> None:
        """Restore what earlier attempts spent on each strategy and found."""
        with self._context.database.reading() as session:
            spent = records.of_job(session, self._context.job.id)
        self._trials = len(spent)
        for candidate in self._candidates.values():
            known = reuse.known(candidate.context)
            own = {task.workload_key for task in known or ()}
            candidate.trials = sum(record.key.workload_key in own for record in spent)
            if known and candidate.trials:
                candidate.take(known)
                candidate.seconds = self._seconds * candidate.trials / len(spent)
                self._begin(candidate)
                candidate.reckon()
                self._tell(candidate)

    def _spend(self, candidate: _Candidate, chosen: Slice) -> None:
        name, context = candidate.strategy.name, self._context
        trials, seconds = candidate.trials, candidate.seconds
        try:
            ended_by = self._search(candidate, chosen) if self._enter(candidate) else ""
        except errors.TunesmithError as error:
            recovery.tolerate(context, error)
            if not isinstance(error, errors.TimeLimit):
                self._failure = self._failure or error
            self._race.end(name, f"failed: {error.message[:300].rstrip('.')}")
            ended_by = ""
        if candidate.extracted:
            candidate.reckon()
            self._tell(candidate)
        if ended_by == "trials" or (ended_by and candidate.trials == trials):
            self._race.end(name, _why_ended(candidate))
        if ended_by:
            context.note(candidate.sentence(trials=candidate.trials - trials, seconds=candidate.seconds - seconds))

    def _enter(self, candidate: _Candidate) -> bool:
        """Prepare the strategy; return whether it has anything to search. Raises EngineError."""
        if candidate.strategy.beside is not None and not self._leads(candidate.base):
            self._race.end(candidate.strategy.name, f"{candidate.strategy.beside} is not the fastest tuner")
            return False
        if not candidate.extracted:
            candidate.take(reuse.tasks_of(candidate.context))
            self._begin(candidate)
        spaces = _spaces(candidate.extracted)
        for other in self._candidates.values():
            if other is not candidate and other.search and spaces == _spaces(other.extracted):
                self._race.end(
                    candidate.strategy.name, f"its tuning tasks are the same as those of {other.strategy.name}"
                )
                candidate.extracted = []
                return False
        if not spaces:
            self._race.end(candidate.strategy.name, "it finds nothing to tune in the model")
        return bool(spaces)

    def _leads(self, base: _Candidate | None) -> bool:
        """Whether a strategy is expected to be about as fast as the fastest of those that compete."""
        rivals = {name: each.estimate for name, each in self._candidates.items() if each.base is None}
        known = {name: seconds for name, seconds in rivals.items() if seconds is not None}
        return base is not None and racing.near(known).get(base.strategy.name, False)

    def _begin(self, candidate: _Candidate) -> None:
        if candidate.base is not None and candidate.base.estimate is not None:
            self._race.begin(candidate.strategy.name, candidate.base.estimate)
            return
        untuned = self._context.results.baseline.start(candidate.context.engine)
        self._race.begin(candidate.strategy.name, untuned if untuned is not None else math.inf)

    def _search(self, candidate: _Candidate, chosen: Slice) -> str:
        own = self._take_up(candidate)
        search = self._resume(
            candidate, seconds=self._until(candidate, own, share=chosen.share), waits_for_others=False
        )
        try:
            return search.run(trials=self._trials_of(chosen))
        finally:
            self._account(candidate, search)

    def _until(self, candidate: _Candidate, own: float | None, *, share: float) -> float | None:
        """Total seconds at which to stop: after a share of the budget, and after the strategy's ``own`` seconds."""
        limits = []
        if self._limit is not None:
            slice_ends = self._seconds + share * self._limit
            limits.append(slice_ends if self._whole is None else min(self._whole, slice_ends))
        if own is not None:
            limits.append(self._seconds + max(0.0, own - candidate.seconds))
        return min(limits, default=None)

    def _trials_of(self, chosen: Slice) -> int | None:
        """Trials of a slice, at most those that are left."""
        if self._budget.trials is None:
            return None
        return min(math.ceil(chosen.share * self._budget.trials), self._budget.trials - self._trials)

    def _take_up(self, candidate: _Candidate) -> float | None:
        """Make the strategy lead and plan the rest of the budget for it; return the seconds of its tasks' shares."""
        strategies.lead(self._context, candidate.strategy)
        context = candidate.context
        with context.transaction() as session:
            planned, seconds = reuse.allot(session, context, candidate.extracted)
            tuning_tasks.save_plan(session, context.job.id, planned)
        return seconds

    def _resume(self, candidate: _Candidate, *, seconds: float | None, waits_for_others: bool) -> StrategySearch:
        if candidate.search is None:
            candidate.search = StrategySearch(candidate.context, seconds=seconds, untuned=candidate.untuned)
            # The search may have recovered trials from the spool.
            self._count(candidate, candidate.search)
        candidate.search.go_on(spent=self._seconds, seconds=seconds, waits_for_others=waits_for_others)
        return candidate.search

    def _account(self, candidate: _Candidate, search: StrategySearch) -> None:
        candidate.seconds += search.seconds - self._seconds
        self._seconds = search.seconds
        search.progress.reload()
        self._count(candidate, search)

    def _count(self, candidate: _Candidate, search: StrategySearch) -> None:
        candidate.trials = sum(task.trials_done for task in search.progress.tasks)
        self._trials = search.progress.trials_done

    def _tell(self, candidate: _Candidate) -> None:
        self._race.report(
            candidate.strategy.name,
            spent=self._share(candidate.trials, candidate.seconds),
            seconds=candidate.estimate,
            explored=candidate.search is not None and candidate.search.explored,
        )

    def _left(self) -> float:
        if self._context.limit.left_to_search == 0.0:
            return 0.0
        return 1.0 - self._share(self._trials, self._seconds)

    def _share(self, trials: int, seconds: float) -> float:
        """Share of the budget that is spent, by the nearer limit."""
        shares = [0.0]
        if self._budget.trials is not None:
            shares.append(trials / self._budget.trials)
        if self._limit is not None:
            shares.append(seconds / self._limit if self._limit else 1.0)
        return min(1.0, max(shares))

    def _finish(self) -> _RaceResult:
        """Spend the rest on the most promising strategy unless none expects more, and wait for tasks that other jobs
        are searching."""
        found = [candidate for candidate in self._candidates.values() if candidate.extracted]
        if not found and self._failure is None:
            # The budget was too small for any slice.
            found = list(self._candidates.values())[:1]
            self._enter(found[0])
        if self._failure is not None and all(candidate.estimate is None for candidate in found):
            raise self._failure
        for candidate in found:
            # Strategies that share tasks share their records, whoever measured them last.
            candidate.reckon()
        # What another strategy's build is completed with needs that strategy's records.
        whole = [candidate for candidate in found if candidate.base is None] or found
        best = min(whole, key=lambda each: min(_expected(one) for one in found if each in (one, one.base)))
        own = self._take_up(best)
        search = self._resume(best, seconds=self._until(best, own, share=1.0), waits_for_others=True)
        failed = best.verdict.startswith("failed")
        settled = self._race.is_settled(self._left())
        ended_by = "trials" if failed else SETTLED if settled else search.run()
        self._account(best, search)
        best.reckon()
        best.verdict = best.verdict if failed else ""
        return _RaceResult(
            context=best.context,
            search=search,
            ended_by=ended_by,
            broken=failed,
            candidates=[each for each in self._candidates.values() if each.extracted or each.verdict],
        )


def _expected(candidate: _Candidate) -> tuple[float, int]:
    """Sort key: among equal ones, the one that was searched further comes first."""
    return math.inf if candidate.estimate is None else candidate.estimate, -candidate.trials


def _spaces(extracted: Sequence[ExtractedTask]) -> set[tuple[str, int]]:
    """Workloads with the sizes of their search spaces."""
    return {(task.workload_key, task.space_size) for task in extracted}


def _why_ended(candidate: _Candidate) -> str:
    if candidate.trials:
        return _DROPPED if candidate.search is not None and candidate.search.dropped else _EXHAUSTED
    return _UNTUNABLE if candidate.estimate is None else _COVERED


def run(context: JobContext) -> TuneResult:
    """Raises NoValidTrial if every task that was tried failed, and EngineError if engines keep crashing."""
    leading.take_over(context)
    raced, reserves = context.results.plan.strategies, context.results.plan.reserves
    several = len(raced) + len(reserves) > 1
    ended = _TunerSelection(context, raced, reserves).run() if several else _alone(context, raced[0])
    unused = _unused(ended)
    # Before the efforts are stored: a search that found nothing covers nothing, so a retry that follows the failure's
    # hint still searches.
    failed = _failed_tasks(ended.context, ended.search)
    _keep_efforts(ended)
    return TuneResult(
        tuner=ended.context.tuner,
        strategies=tuple(candidate.result() for candidate in ended.candidates),
        helpers=leading.settle(context),
        trials=ended.search.progress.trials_done,
        seconds=ended.search.seconds,
        ended_by=ended.ended_by,
        unused_seconds=unused,
        failed_tasks=failed,
        choice=(*(_choice(ended) if several else ()), *_why_unused(context, ended, unused)),
    )


def _unused(ended: _RaceResult) -> float:
    """Seconds of the budget that the search did not need."""
    budget = ended.context.request.budget
    if budget.seconds is None or ended.ended_by not in ("trials", SETTLED):
        return 0.0
    return max(0.0, budget.seconds - ended.search.seconds)


def _why_unused(context: JobContext, ended: _RaceResult, unused: float) -> list[str]:
    """A sentence, which is also noted, if much of the budget was not needed."""
    seconds = context.request.budget.seconds
    if seconds is None or unused < seconds * _MUCH or not context.results.plan.trials_planned:
        return []
    why = (
        f"no strategy expected to gain {racing.WORTH:.0%} more"
        if ended.ended_by == SETTLED
        else "nothing was left to try"
    )
    sentence = f"{unused:.0f} of {seconds:.0f} seconds of tuning were not used: {why}."
    context.note(sentence)
    return [sentence]


def _alone(context: JobContext, strategy: Strategy) -> _RaceResult:
    untuned = in_place.seconds(context, reuse.known(context) or [])
    search = StrategySearch(context, seconds=context.results.plan.budget_seconds, untuned=untuned)
    ended_by = search.run()
    search.progress.reload()
    tasks = search.progress.tasks
    candidate = _Candidate(
        strategy=strategy,
        context=context,
        extracted=[task.extracted for task in tasks],
        trials=sum(task.trials_done for task in tasks),
        seconds=search.seconds,
        search=search,
        untuned=untuned,
    )
    candidate.reckon()
    return _RaceResult(context=context, search=search, ended_by=ended_by, candidates=[candidate])


def _choice(ended: _RaceResult) -> list[str]:
    """One sentence for each strategy."""
    sentences = []
    for candidate in ended.candidates:
        if not candidate.trials and candidate.verdict:
            sentences.append(f"{candidate.strategy.name}: {candidate.verdict}.")
            continue
        sentence = candidate.sentence(trials=candidate.trials, seconds=candidate.seconds)
        sentences.append(f"{sentence[:-1]}; {candidate.verdict}." if candidate.verdict else sentence)
    return sentences


def _keep_efforts(ended: _RaceResult) -> None:
    """Store how far each task was searched, for the next job and for running jobs that wait for this one.

    The task's share of the limit that ended the search counts as spent, as the search would not have given the task
    more. For tasks that engines rejected or crashed on, and at the job's total limit, only the actual spending counts.
    """
    context, search, ended_by = ended.context, ended.search, ended.ended_by
    tasks = search.progress.tasks
    extracted = [task.extracted for task in tasks]
    with context.transaction() as session:
        known = reuse.coverage(session, context, extracted)
        now = {task.extracted.workload_key: _searched(search, task, known) for task in tasks}
        spent = {task.extracted.workload_key: _spent(search, task, known) for task in tasks}
        options = context.request.tuner_options
        shares = planning.shares(extracted, context.request.budget, covered=now, n_trial=options.n_trial)
        # Without a limit of trials, a task is searched for as long as it is promising.
        sated = context.request.budget.trials is None
        efforts = {}
        for task, share in zip(tasks, shares, strict=True):
            key = task.extracted.workload_key
            if not task.trials_planned:
                continue
            if ended.broken or key in search.dropped or ended_by == TOTAL:
                efforts[key] = spent[key]
                continue
            efforts[key] = Effort(
                trials=max(spent[key].trials, share.trials if ended_by == "trials" else 0.0),
                seconds=max(spent[key].seconds, share.seconds if ended_by == "seconds" or sated else 0.0),
            )
        tuning_tasks.set_effort(session, context.job.id, efforts)


def _searched(search: StrategySearch, task: TuningTask, known: Mapping[str, Coverage]) -> Coverage:
    """Coverage of a task after the search, by this job and by others."""
    before = known[task.extracted.workload_key]
    return replace(before, trials=task.trials_done + before.trials, effort=_spent(search, task, known))


def _spent(search: StrategySearch, task: TuningTask, known: Mapping[str, Coverage]) -> Effort:
    """Effort spent on a task after the search, by this job and by others."""
    key = task.extracted.workload_key
    trials = task.trials_done + known[key].trials
    if key in search.exhausted or trials >= task.extracted.space_size:
        return Effort(trials=math.inf, seconds=math.inf)
    before = known[key].effort or Effort(trials=0.0, seconds=0.0)
    return Effort(trials=float(trials), seconds=before.seconds + search.seconds_of[key])


def _failed_tasks(context: JobContext, search: StrategySearch) -> tuple[FailedTask, ...]:
    """Tasks without a valid trial, each noted. Raises NoValidTrial when there is no valid trial of any task."""
    tried = [task for task in search.progress.tasks if task.trials_done]
    failed = [task for task in tried if task.best_latency is None]
    for task in failed:
        what = f"{task.extracted.description} failed: {_histogram(task.failures)}"
        context.note(f"every trial of {what}. {hint_of(task.failures)}")
    if failed and len(failed) == len(tried) and not any(task.best_latency for task in search.progress.tasks):
        raise errors.NoValidTrial(
            f"every trial of every tuning task failed: {_histogram(_total(failed))}",
            hint=hint_of(_total(failed)),
            details={"failures": _total(failed), "tasks": [_facts(task) for task in failed]},
        )
    return tuple(FailedTask(**_facts(task), hint=hint_of(task.failures)) for task in failed)


def _histogram(failures: dict[str, int]) -> str:
    return ", ".join(f"{count} × {kind}" for kind, count in sorted(failures.items()))


def _total(tasks: list[TuningTask]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for task in tasks:
        total.update(task.failures)
    return dict(total)


def _facts(task: TuningTask) -> dict[str, Any]:
    return {"position": task.extracted.position, "name": task.extracted.name, "failures": task.failures}


def hint_of(failures: Mapping[str, int]) -> str:
    """The hint for the most frequent failure; keys are values of ``TrialError``."""
    worst = max(failures, key=lambda kind: failures[kind], default=TrialError.UNKNOWN.value)
    return next((hint for kind, hint in _HINTS.items() if kind == worst), _UNKNOWN)
