"""Which of several tuners gets the budget: each searches the heaviest tasks for a while, and the most promising leads.

A small budget is not spent on finding out: then the first tuner of the fastest correct engine leads.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from domain import errors
from domain.artifacts import Variant
from domain.jobs import Budget, Stage, Tuner
from domain.tuning_tasks import ExtractedTask, TuningTask
from storage import jobs, records, tuning_tasks
from tuner import planning, timing
from worker.pipeline import beginning, building, candidates, compiling, covering, extraction, measuring
from worker.pipeline.searching import Search
from worker.pipeline.work import INPUTS, Work

SLICE = 0.15
"""Of the budget, for each tuner."""
LEAST_SECONDS = 900.0
LEAST_TRIALS = 1000
"""Budgets below are not worth a slice: it would not show what a tuner can do."""
MOST_SECONDS = 600.0
HEAVIEST = 4
_TIME_SECONDS = 600.0
_RUNS = {"number": 3, "repeat": 5}


@dataclass(frozen=True, kw_only=True)
class Scouted:
    tuner: Tuner
    choice: list[str]
    """One sentence for each tuner."""


def run(work: Work) -> Scouted:
    """Raises LeaseLost, Canceled."""
    if not work.measures:
        return _most_records(work)
    covered = _covered(work)
    if covered is not None:
        return Scouted(tuner=covered, choice=[f"{covered} leads: earlier searches cover all that it would search."])
    if not worthwhile(work.request.budget):
        said = (
            f"{work.tuner} leads: no other engine is clearly faster untuned, and the budget is too small to try more."
        )
        return Scouted(tuner=work.tuner, choice=[said])
    return _scout(work)


def worthwhile(budget: Budget) -> bool:
    enough_seconds = budget.seconds is None or budget.seconds >= LEAST_SECONDS
    return enough_seconds and (budget.trials is None or budget.trials >= LEAST_TRIALS)


def _covered(work: Work) -> Tuner | None:
    """A tuner whose tasks others have searched as hard as this budget would; of several the preferred one."""
    for tuner in candidates.usable(work):
        led = beginning.lead(work, tuner)
        extracted = extraction.known(led)
        if not extracted:
            continue
        with work.database.reading() as session:
            planned, _ = covering.allot(session, led, extracted)
        if any(task.best_latency for task in planned) and not any(task.trials_planned for task in planned):
            return tuner
    return None


def _most_records(work: Work) -> Scouted:
    """For a job that measures nothing, the tuner with records for most of its tasks."""
    found: dict[Tuner, int] = {}
    for tuner in candidates.usable(work):
        led = beginning.lead(work, tuner)
        try:
            keys = [task.workload_key for task in extraction.tasks(led)]
        except errors.TunesmithError:
            work.keeper.check()
            continue
        with work.database.reading() as session:
            found[tuner] = len(records.best_of_many(session, keys, **covering.record_identity(led)))
    best = max(found, key=lambda tuner: found[tuner], default=work.tuner)
    return Scouted(tuner=best, choice=[f"{tuner} has records for {count} tasks." for tuner, count in found.items()])


def _scout(work: Work) -> Scouted:
    promises: dict[Tuner, float] = {}
    choice = []
    for place, tuner in enumerate(candidates.usable(work)):
        try:
            promise = _Scout(beginning.lead(work, tuner), place)
            promises[tuner] = promise.seconds()
            choice.append(promise.sentence(promises[tuner]))
        except errors.TunesmithError as error:
            work.keeper.check()
            choice.append(f"{tuner} failed on the heaviest tasks: {error.message[:300].rstrip('.')}.")
        work.note(choice[-1])
    best = min(promises, key=lambda tuner: promises[tuner], default=work.tuner)
    return Scouted(tuner=best, choice=[*choice, f"{best} promises most and gets the rest of the budget."])


class _Scout:
    """One tuner's slice of the budget, spent on the heaviest tasks."""

    def __init__(self, work: Work, place: int) -> None:
        """``place``: slices before this one."""
        self._work = work
        self._planned = self._plan()
        slice_seconds = _slice(work.request.budget).seconds
        limit = None if slice_seconds is None else slice_seconds * (place + 1)
        self._search = Search(work, seconds=limit, patient=False)
        before = self._search.seconds
        self._search.run()
        self._seconds = self._search.seconds - before
        self._measured = False

    def seconds(self) -> float:
        """What one run of the model would take with what was found; measured where no default tells of the gain."""
        untuned = self._work.outcomes[Stage.BASELINE]["engines"][self._work.engine]
        self._search.progress.reload()
        gains = []
        for task in self._search.progress.tasks:
            default = self._search.defaults.get(task.extracted.workload_key)
            if default is None or task.best_latency is None:
                self._measured = True
                return self._time()
            gains.append(task.extracted.weight * max(0.0, default - task.best_latency))
        return max(float(untuned) - sum(gains), 0.0)

    def sentence(self, promised: float) -> str:
        trials = sum(task.trials_done for task in self._search.progress.tasks)
        name, tasks = self._work.tuner, len(self._planned)
        spent = f"{name}: {trials} trials on the {tasks} heaviest tasks in {self._seconds:.0f} s"
        told = "the model then ran" if self._measured else "the model would then run"
        return f"{spent}; {told} in {promised * 1e3:.3g} ms."

    def _plan(self) -> list[TuningTask]:
        work = self._work
        heaviest = _heaviest(extraction.tasks(work))
        with work.database.transaction() as session:
            work.keeper.require(jobs.holds(session, work.job.id, work.lease))
            covered = covering.coverage(session, work, heaviest)
            planned = planning.plan(work.job.id, heaviest, _slice(work.request.budget), covered=covered)
            tuning_tasks.save_plan(session, work.job.id, planned)
        return planned

    def _time(self) -> float:
        """End to end, with the records that there are."""
        work = self._work
        lines = compiling.candidate_lines(work)
        if not lines:
            raise errors.NoValidTrial(f"{work.tuner} has no valid record")
        path = work.folder / f"scouted-{work.tuner}.jsonl"
        path.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
        folder = f"scouted-{work.tuner}"
        building.tuned(work, folder, path)
        engine = work.engines.get(work.engine, role=folder)
        inputs = work.arrays(INPUTS)[0]
        timed = timing.compiled(Variant.TUNED, engine, work.folder / folder, inputs, place=work.place)
        with measuring.alone(work):
            answer = work.ask(engine, "time", {**timed.params, **_RUNS}, timeout=_TIME_SECONDS)
        work.engines.close(work.engine, role=folder)
        return statistics.median(float(sample) for sample in answer["samples"])


def _slice(budget: Budget) -> Budget:
    seconds = None if budget.seconds is None else min(budget.seconds * SLICE, MOST_SECONDS)
    trials = None if budget.trials is None else max(1, int(budget.trials * SLICE))
    return Budget(trials=trials, seconds=seconds)


def _heaviest(extracted: Sequence[ExtractedTask]) -> list[ExtractedTask]:
    tunable = [task for task in extracted if task.space_size > 1]
    return sorted(tunable, key=lambda task: (-task.weight * task.flop, task.position))[:HEAVIEST]
