"""Which tuning tasks get how many trials, before any is measured.

A task is covered when it was searched as hard as its share of the budget would search it; whoever did it, nobody pays
for it again, and the budget is cut to the shares of the tasks that are left. Of seconds, tasks of which nothing is left
to try leave their shares to the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from domain.jobs import Budget
from domain.tuning_tasks import Coverage, Effort, ExtractedTask, TuningTask

TRIALS_PER_TASK = 512
"""Cap for a task when nothing else limits it: AutoTVM's own searches of CPU templates level out before."""
ROUND_TRIALS = 8
"""The least worth starting a task for: one round."""
_ENOUGH = 0.8
"""Part of a share whose spending counts as all of it: shares of a layer differ a little between models that have it."""


_UNKNOWN = Coverage(trials=0, best_latency=None)


def plan(
    job_id: str,
    extracted: Sequence[ExtractedTask],
    budget: Budget,
    *,
    covered: Mapping[str, Coverage] | None = None,
    n_trial: int | None = None,
) -> list[TuningTask]:
    """A tuning task for every extracted one, in its order; ``covered`` goes by workload key.

    A task may take the trials that its search space and ``n_trial`` (the most for one task) allow. A budget of trials
    is shared out by the tasks' work, weight × FLOPs, heaviest first when it does not reach for a round each. Without
    one, every task may take all it can, and the budget of seconds ends the search. What others spent on a task is
    taken off, and one whose share they spent in trials or in seconds, whichever the budget limits, gets none.
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
    """The plan of a job that measures nothing."""
    return [replace(task, trials_planned=0) for task in tasks]


def less_trials(budget: Budget, spent: int) -> Budget:
    """What is left when so many trials were spent; a budget that has trials keeps at least one."""
    return budget if budget.trials is None else replace(budget, trials=max(1, budget.trials - spent))


def shares(
    extracted: Sequence[ExtractedTask],
    budget: Budget,
    *,
    covered: Mapping[str, Coverage] | None = None,
    n_trial: int | None = None,
) -> list[Effort]:
    """What the budget holds for each task, whoever searched it before; 0 of what it does not limit.

    ``covered`` tells of which tasks nothing is left to try: these get no seconds.
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
    """The budget of seconds without the shares of tasks that get no trials, and without what others spent on the rest.

    ``planned``: trials by workload key. None when the budget sets no seconds.
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
    """Nothing is on record, or nothing but failures of searches that were cut off or failed: others may do better."""
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
    # What is on record already cannot be searched again, however large the share.
    room = max(0, most - known.trials)
    return min(room, max(0, math.ceil(share.trials - trials)))


def _most(task: ExtractedTask, n_trial: int | None) -> int:
    # Of one schedule there is nothing to choose: the untuned build has it already.
    return 0 if task.space_size <= 1 else min(task.space_size, n_trial or TRIALS_PER_TASK)


def _work(extracted: Sequence[ExtractedTask]) -> list[float]:
    """Weight × FLOPs of each; alternatives share those of the operator, which is computed once."""
    ways = Counter(task.alternatives for task in extracted)
    return [
        task.weight * max(task.flop, 1.0) / (1 if task.alternatives is None else ways[task.alternatives])
        for task in extracted
    ]


def _share(trials: int, needs: Sequence[int], work: Sequence[float]) -> list[int]:
    """Split ``trials``: a round for each task, heaviest first, and the rest by work; no task above its need."""
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
            # Too few are left for proportions.
            shares[open_tasks[0]] += 1
            left -= 1
    return shares
