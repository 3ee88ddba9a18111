"""Several arms on one budget, slice by slice; ``tuner.racing`` says whose the next one is.

What an arm has found is in the record store, and how much it has spent is told by the job's records, so an attempt that
begins again goes on with the same race and measures nothing twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from domain import errors
from domain.jobs import Stage
from domain.tuning_tasks import ExtractedTask
from storage import jobs, records, tuning_tasks
from tuner import racing
from tuner.racing import Slice
from worker.pipeline import arms, covering, extraction
from worker.pipeline.arms import Arm
from worker.pipeline.progress import Progress
from worker.pipeline.searching import Search
from worker.pipeline.work import Work

_DROPPED = "engines refused what was left for it to search, or died of it"
_EXHAUSTED = "nothing is left for it to search"
_COVERED = "earlier searches cover all that it would search"
_UNTUNABLE = "none of its tuning tasks could be tuned"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The arm that leads in the end, and what its search came to."""

    work: Work
    search: Search
    ended_by: str
    broken: bool = False
    """Whether the search failed, and was not run to its end."""
    entries: list[Entry]


@dataclass(kw_only=True)
class Entry:
    """What one arm has spent and found."""

    arm: Arm
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
        self.estimate = arms.estimate(self.work, self.extracted, self.search.defaults if self.search and same else {})

    def dump(self) -> dict[str, Any]:
        told = {"trials": self.trials, "seconds": self.seconds, "estimate": self.estimate, "verdict": self.verdict}
        return {**self.arm.dump(), **told}

    def sentence(self, *, trials: int, seconds: float) -> str:
        spent = f"{self.arm.name}: {trials} trials in {seconds:.0f} s"
        if self.estimate is None:
            return f"{spent}, none of them valid."
        return f"{spent}; the model would then run in {self.estimate * 1e3:.3g} ms."


def run(work: Work, raced: Sequence[Arm]) -> Ended:
    """Raises what the leading arm's search raises, LeaseLost, Canceled."""
    return _Contest(work, raced).run()


class _Contest:
    def __init__(self, work: Work, raced: Sequence[Arm]) -> None:
        self._work = work
        self._budget = work.request.budget
        self._limit = _limit(work, raced)
        self._entries = {arm.name: Entry(arm=arm, work=arms.view(work, arm)) for arm in raced}
        self._race = racing.Race(list(self._entries), impression=racing.impression(self._budget))
        self._failure: errors.TunesmithError | None = None
        self._seconds = Progress(work).seconds_before
        self._trials = 0
        """Of all arms; those of a workload that two of them share are trials of either, and count once here."""
        self._recall()

    def run(self) -> Ended:
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
            known = extraction.known(entry.work)
            own = {task.workload_key for task in known or ()}
            entry.trials = sum(record.key.workload_key in own for record in spent)
            if known and entry.trials:
                entry.extracted = known
                entry.seconds = self._seconds * entry.trials / len(spent)
                self._begin(entry)
                entry.reckon()
                self._tell(entry)

    def _spend(self, entry: Entry, chosen: Slice) -> None:
        name, work = entry.arm.name, self._work
        trials, seconds = entry.trials, entry.seconds
        try:
            ended_by = self._search(entry, chosen) if self._enter(entry) else ""
        except errors.TunesmithError as error:
            work.keeper.check()
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

    def _enter(self, entry: Entry) -> bool:
        """Whether the arm has anything to search. Raises EngineError."""
        if not entry.extracted:
            entry.extracted = extraction.tasks(entry.work)
            self._begin(entry)
        keys = {task.workload_key for task in entry.extracted}
        for other in self._entries.values():
            if other is not entry and other.search and keys == {task.workload_key for task in other.extracted}:
                self._race.end(entry.arm.name, f"its tuning tasks are those of {other.arm.name}")
                return False
        if not keys:
            self._race.end(entry.arm.name, "finds nothing to tune in the model")
        return bool(keys)

    def _begin(self, entry: Entry) -> None:
        untuned = self._work.outcomes[Stage.BASELINE]["engines"].get(entry.work.engine)
        self._race.begin(entry.arm.name, float(untuned) if untuned is not None else math.inf)

    def _search(self, entry: Entry, chosen: Slice) -> str:
        own = self._take_up(entry)
        search = self._resume(entry, seconds=self._until(entry, own, share=chosen.share), patient=False)
        try:
            return search.run(trials=self._trials_of(chosen))
        finally:
            self._account(entry, search)

    def _until(self, entry: Entry, own: float | None, *, share: float) -> float | None:
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

    def _take_up(self, entry: Entry) -> float | None:
        """Make the arm the leading one, with a plan for what is left; returns the seconds of its tasks' shares."""
        arms.lead(self._work, entry.arm)
        work = entry.work
        with work.database.transaction() as session:
            work.keeper.require(jobs.holds(session, work.job.id, work.lease))
            planned, seconds = covering.allot(session, work, entry.extracted)
            tuning_tasks.save_plan(session, work.job.id, planned)
        return seconds

    def _resume(self, entry: Entry, *, seconds: float | None, patient: bool) -> Search:
        if entry.search is None:
            entry.search = Search(entry.work, seconds=seconds)
            # What only the journal knew is the arm's too.
            self._count(entry, entry.search)
        entry.search.go_on(spent=self._seconds, seconds=seconds, patient=patient)
        return entry.search

    def _account(self, entry: Entry, search: Search) -> None:
        entry.seconds += search.seconds - self._seconds
        self._seconds = search.seconds
        search.progress.reload()
        self._count(entry, search)

    def _count(self, entry: Entry, search: Search) -> None:
        entry.trials = sum(task.trials_done for task in search.progress.tasks)
        self._trials = search.progress.trials_done

    def _tell(self, entry: Entry) -> None:
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

    def _finish(self) -> Ended:
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
        return Ended(
            work=best.work, search=search, ended_by=ended_by, broken=failed, entries=list(self._entries.values())
        )


def _limit(work: Work, raced: Sequence[Arm]) -> float | None:
    """Seconds for all arms together.

    The plan takes off what others have spent on the leading arm's tasks, which is no reason to search a narrower
    precision less: then each arm is held to what is left of its own tasks' shares.
    """
    planned: float | None = work.outcomes[Stage.PLAN]["budget_seconds"]
    return work.request.budget.seconds if any(arm.precision for arm in raced) else planned


def _why_ended(entry: Entry) -> str:
    if entry.trials:
        return _DROPPED if entry.search is not None and entry.search.dropped else _EXHAUSTED
    return _UNTUNABLE if entry.estimate is None else _COVERED
