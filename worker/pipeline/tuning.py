"""Stage ``tune``: the search of the arm that leads, or of several that race for the budget, and what it came to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from domain import errors
from domain.jobs import Stage
from domain.tuning_tasks import Coverage, Effort, TuningTask
from storage import jobs, tuning_tasks
from tuner import planning
from worker.pipeline import arms, contest, covering, hints, sharing
from worker.pipeline.arms import Arm
from worker.pipeline.searching import Search
from worker.pipeline.work import Outcome, Work


def run(work: Work) -> Outcome:
    """Raises NoValidTrial when every task that was tried failed, and EngineError when engines keep crashing."""
    sharing.take_over(work)
    raced = [arms.load(arm) for arm in work.outcomes[Stage.PLAN]["arms"]]
    ended = contest.run(work, raced) if len(raced) > 1 else _alone(work, raced[0])
    # A search that found nothing covers nothing: whoever does what the failure's hint says shall be served.
    outcome = _conclude(ended.work, ended.search, ended.ended_by)
    _keep_efforts(ended)
    told: dict[str, Any] = {"tuner": str(ended.work.tuner), "arms": [entry.dump() for entry in ended.entries]}
    helpers = sharing.settle(work)
    if helpers:
        told["helpers"] = helpers
    return {**outcome, **told, "choice": _choice(ended) if len(raced) > 1 else []}


def _alone(work: Work, arm: Arm) -> contest.Ended:
    search = Search(work, seconds=work.outcomes[Stage.PLAN]["budget_seconds"])
    ended_by = search.run()
    search.progress.reload()
    tasks = search.progress.tasks
    entry = contest.Entry(
        arm=arm,
        work=work,
        extracted=[task.extracted for task in tasks],
        trials=sum(task.trials_done for task in tasks),
        seconds=search.seconds,
        search=search,
    )
    entry.reckon()
    return contest.Ended(work=work, search=search, ended_by=ended_by, entries=[entry])


def _choice(ended: contest.Ended) -> list[str]:
    """One sentence for each arm."""
    said = []
    for entry in ended.entries:
        if not entry.trials and entry.verdict:
            said.append(f"{entry.arm.name}: {entry.verdict}.")
            continue
        sentence = entry.sentence(trials=entry.trials, seconds=entry.seconds)
        said.append(f"{sentence[:-1]}; {entry.verdict}." if entry.verdict else sentence)
    return said


def _keep_efforts(ended: contest.Ended) -> None:
    """So that the next job knows how hard each task was searched, and jobs at work stop waiting for this one.

    A share of what ended the search counts as spent: the search would not have given the task more. Of what engines
    refused or died of, only what was spent does.
    """
    work, search, ended_by = ended.work, ended.search, ended.ended_by
    tasks = search.progress.tasks
    extracted = [task.extracted for task in tasks]
    with work.database.transaction() as session:
        work.keeper.require(jobs.holds(session, work.job.id, work.lease))
        known = covering.coverage(session, work, extracted)
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


def _conclude(work: Work, search: Search, ended_by: str) -> Outcome:
    tried = [task for task in search.progress.tasks if task.trials_done]
    failed = [task for task in tried if task.best_latency is None]
    for task in failed:
        what = f"{task.extracted.description} failed: {_histogram(task.failures)}"
        work.note(f"every trial of {what}. {hints.of(task.failures)}")
    if failed and len(failed) == len(tried) and not any(task.best_latency for task in search.progress.tasks):
        raise errors.NoValidTrial(
            f"every trial of every tuning task failed: {_histogram(_total(failed))}",
            hint=hints.of(_total(failed)),
            details={"failures": _total(failed), "tasks": _by_name(failed)},
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
