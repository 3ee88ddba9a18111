"""Distribution of a budget over tuning tasks, before trials are measured.

A task is covered if earlier searches, of any job, spent at least its share of the budget on it; it gets no trials, and
the budget is reduced to the shares of the others. Tasks with exhausted search spaces pass on their shares of seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from domain.jobs import Budget
from domain.tuning_tasks import Coverage, Effort, ExtractedTask, TuningTask

TRIALS_PER_TASK = 512
"""Limit of a task without another limit; AutoTVM's searches of CPU templates converge before."""
ROUND_TRIALS = 8
"""Minimum trials of a task: one round."""
_ENOUGH = 0.8
"""Part of its share that a task must have spent to be covered, as shares of equal layers differ slightly
between models."""


_UNKNOWN = Coverage(trials=0, best_latency=None)


def plan(
    job_id: str,
    extracted: Sequence[ExtractedTask],
    budget: Budget,
    *,
    covered: Mapping[str, Coverage] | None = None,
    n_trial: int | None = None,
) -> list[TuningTask]:
    """Return a tuning task for each extracted one, in order; ``covered`` is by workload key.

    A task gets at most the trials of its search space and ``n_trial``. A budget of trials is distributed by work,
    weight × FLOPs, heaviest first if it is too small for one round each. Without one, every task may use all of its
    trials, and the budget of seconds ends the search. Trials of earlier searches are subtracted, and a covered task, in
    trials or in seconds, whichever the budget limits, gets none.
    """
    covered = covered or {}
    shared = shares(extracted, budget, covered=covered, n_trial=n_trial)
    most = [_most(task, n_trial) for task in extracted]
    return [
        TuningTask(
            job_id=job_id,
            extracted=task,
            trials_planned=_missing(budget, share, limit, covered.get(task.workload_key, _UNKNOWN)),
            best_latency=covered.get(task.workload_key, _UNKNOWN).best_latency,
        )
        for task, share, limit in zip(extracted, shared, most, strict=True)
    ]


def without_trials(tasks: Sequence[TuningTask]) -> list[TuningTask]:
    """Return the plan of a job that measures nothing."""
    return [replace(task, trials_planned=0) for task in tasks]


def less_trials(budget: Budget, spent: int) -> Budget:
    """Return the budget after ``spent`` trials; a trial budget keeps at least one."""
    return budget if budget.trials is None else replace(budget, trials=max(1, budget.trials - spent))


def shares(
    extracted: Sequence[ExtractedTask],
    budget: Budget,
    *,
    covered: Mapping[str, Coverage] | None = None,
    n_trial: int | None = None,
) -> list[Effort]:
    """Return each task's share of the budget, whoever searched it before; 0 for an unlimited quantity.

    Tasks with exhausted search spaces according to ``covered`` get no seconds.
    """
    covered = covered or {}
    most = [_most(task, n_trial) for task in extracted]
    work = [part if limit else 0.0 for part, limit in zip(_work(extracted), most, strict=True)]
    trials = [0] * len(most) if budget.trials is None else _share(budget.trials, most, work)
    left = [
        0.0 if _is_exhausted(covered.get(task.workload_key, _UNKNOWN), limit) else part
        for task, part, limit in zip(extracted, work, most, strict=True)
    ]
    total = math.fsum(left) or 1.0
    return [
        Effort(trials=float(count), seconds=(budget.seconds or 0.0) * part / total)
        for count, part in zip(trials, left, strict=True)
    ]


def seconds(
    extracted: Sequence[ExtractedTask],
    budget: Budget,
    planned: Mapping[str, int],
    *,
    covered: Mapping[str, Coverage] | None = None,
    n_trial: int | None = None,
) -> float | None:
    """Return the budget of seconds without the shares of tasks without trials, and without what earlier searches spent
    on the others.

    ``planned`` are trials by workload key. None without a budget of seconds.
    """
    if budget.seconds is None:
        return None
    shared = shares(extracted, budget, covered=covered, n_trial=n_trial)
    left = 0.0
    for task, share in zip(extracted, shared, strict=True):
        if planned.get(task.workload_key):
            effort = (covered or {}).get(task.workload_key, _UNKNOWN).effort
            left += max(0.0, share.seconds - (effort.seconds if effort else 0.0))
    return left


def _is_unknown(known: Coverage) -> bool:
    """Return whether nothing is on record, or only failures of incomplete searches."""
    return known.effort is None and known.best_latency is None


def _is_exhausted(known: Coverage, most: int) -> bool:
    if _is_unknown(known):
        return False
    return known.trials >= most or (known.effort is not None and math.isinf(known.effort.seconds))


def _missing(budget: Budget, share: Effort, most: int, known: Coverage) -> int:
    if _is_unknown(known):
        return most if budget.trials is None else int(share.trials)
    spent = known.effort or Effort(trials=0.0, seconds=0.0)
    trials = max(spent.trials, float(known.trials))
    if math.isinf(trials) or (budget.seconds is not None and spent.seconds >= share.seconds * _ENOUGH):
        return 0
    if budget.trials is None:
        return max(0, most - known.trials)
    if trials >= share.trials * _ENOUGH:
        return 0
    # Trials on record cannot be repeated, however large the share is.
    room = max(0, most - known.trials)
    return min(room, max(0, math.ceil(share.trials - trials)))


def _most(task: ExtractedTask, n_trial: int | None) -> int:
    # A single schedule leaves no choice: the untuned build already uses it.
    return 0 if task.space_size <= 1 else min(task.space_size, n_trial or TRIALS_PER_TASK)


def _work(extracted: Sequence[ExtractedTask]) -> list[float]:
    """Return weight × FLOPs of each task; alternatives share those of their operator, which runs once."""
    ways = Counter(task.alternatives for task in extracted)
    return [
        task.weight * max(task.flop, 1.0) / (1 if task.alternatives is None else ways[task.alternatives])
        for task in extracted
    ]


def _share(trials: int, needs: Sequence[int], work: Sequence[float]) -> list[int]:
    """Distribute ``trials``: a round per task, heaviest first, and the rest by work; no task gets more than it
    needs."""
    shares = [0] * len(needs)
    order = sorted(range(len(needs)), key=lambda index: (-work[index], index))
    left = min(trials, sum(needs))
    for index in order:
        shares[index] = min(ROUND_TRIALS, needs[index], left)
        left -= shares[index]
    while left:
        open_tasks = [index for index in order if shares[index] < needs[index]]
        total = sum(work[index] for index in open_tasks)
        before = left
        for index in open_tasks:
            extra = min(int(before * work[index] / total), needs[index] - shares[index], left)
            shares[index] += extra
            left -= extra
        if left == before:
            # Too few are left for proportional shares.
            shares[open_tasks[0]] += 1
            left -= 1
    return shares
