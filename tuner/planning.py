"""Which tuning tasks get how many trials, before any is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.jobs import Budget
from domain.tuning_tasks import ExtractedTask, TuningTask

TRIALS_PER_TASK = 512
"""Cap for a task when nothing else limits it: AutoTVM's own searches of CPU templates level out before."""
ROUND_TRIALS = 8
"""The least worth starting a task for: one round."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What the record store holds for a task's key already."""

    trials: int
    best_latency: float | None
    """Seconds."""


def plan(
    job_id: str,
    extracted: Sequence[ExtractedTask],
    budget: Budget,
    *,
    covered: Mapping[str, Coverage] | None = None,
    n_trial: int | None = None,
) -> list[TuningTask]:
    """A tuning task for every extracted one, in its order; ``covered`` goes by workload key.

    A task needs the trials that its search space and ``n_trial`` (the most for one task) allow, less those on record:
    a task that others have searched gets none. A budget of trials is shared out by the tasks' work, weight × FLOPs,
    heaviest first when it does not reach for a round each. Without one, every task may take all it needs, and the
    budget of seconds ends the search.
    """
    covered = covered or {}
    needs = [_need(task, covered.get(task.workload_key), n_trial) for task in extracted]
    work = [task.weight * max(task.flop, 1.0) for task in extracted]
    planned = needs if budget.trials is None else _share(budget.trials, needs, work)
    return [
        TuningTask(
            job_id=job_id,
            extracted=task,
            trials_planned=trials,
            best_latency=known.best_latency if (known := covered.get(task.workload_key)) else None,
        )
        for task, trials in zip(extracted, planned, strict=True)
    ]


def _need(task: ExtractedTask, known: Coverage | None, n_trial: int | None) -> int:
    if task.space_size == 1:
        # There is nothing to choose: the untuned build has it already.
        return 0
    wanted = min(task.space_size, n_trial or TRIALS_PER_TASK)
    return max(0, wanted - (known.trials if known else 0))


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
