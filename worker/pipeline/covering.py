"""What is known already of a job's tuning tasks: records, searches that ended, and searches of jobs at work."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from domain.tuning_tasks import Coverage, ExtractedTask, TuningTask
from storage import coverage as known
from storage import records, tuning_tasks
from tuner import planning
from worker import clock
from worker.pipeline.work import Work


def record_identity(work: Work) -> dict[str, str]:
    """What every lookup of records must match."""
    return {
        "target": work.target.identity,
        "device_key": work.device.key,
        "toolchain": work.toolchains[work.engine].identity,
    }


def coverage(session: Session, work: Work, extracted: Sequence[ExtractedTask]) -> dict[str, Coverage]:
    """What others have measured; the job's own trials count against its plan, not beside it."""
    keys = [task.workload_key for task in extracted]
    return known.find(session, keys, **record_identity(work), excluding_job=work.job.id)


def allot(
    session: Session, work: Work, extracted: Sequence[ExtractedTask], *, without: Collection[str] = ()
) -> tuple[list[TuningTask], float | None]:
    """Trials for each task after what others have spent on it, and the seconds that are left of the budget.

    ``without``: workloads whose seconds are not to be spent on others, as they may still be needed.
    """
    request = work.request
    cap = request.tuner_options.n_trial
    covered = coverage(session, work, extracted)
    keys = [task.workload_key for task in extracted]
    budget = planning.less_trials(request.budget, trials_beside(session, work, keys))
    planned = planning.plan(work.job.id, extracted, budget, covered=covered, n_trial=cap)
    if not work.measures:
        planned = planning.without_trials(planned)
    trials = {
        task.extracted.workload_key: task.trials_planned
        for task in planned
        if task.extracted.workload_key not in without
    }
    seconds = planning.seconds(extracted, budget, trials, covered=covered, n_trial=cap)
    return planned, seconds


def trials_beside(session: Session, work: Work, keys: Collection[str]) -> int:
    """Trials that the job spent on other workloads than these: on those of arms that do not lead."""
    own = set(keys)
    return sum(record.key.workload_key not in own for record in records.of_job(session, work.job.id))


def elsewhere(session: Session, work: Work, keys: Sequence[str]) -> dict[str, str]:
    """Workloads that another job is searching now, and which job that is."""
    return tuning_tasks.tuned_elsewhere(session, work.job.id, keys, **record_identity(work), now=clock.now())
