"""What is known already of a job's tuning tasks, and what a search is told of it before its first trial.

Nothing on record is measured again, cost models learn from it, and what other jobs are searching is left to them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from domain.jobs import Tuner
from domain.records import Record, RecordKey
from domain.tuning_tasks import Coverage, ExtractedTask, TuningTask
from storage import records, tuning_tasks
from storage.tables import digest_of
from tuner import planning
from worker import clock
from worker.pipeline.work import Work

_TRANSFERRED = 512
"""Records of other workloads: a cost model learns from them in a second or two."""


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
    return tuning_tasks.coverage(session, keys, **record_identity(work), excluding_job=work.job.id)


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


def write(work: Work, task: ExtractedTask) -> str | None:
    """The file with native lines of one tuning task, and those that help with it; None when there are none."""
    lines = [record.schedule.rstrip("\n") + "\n" for record in [*_own(work, task), *_others(work, task)]]
    if not lines:
        return None
    path: Path = work.folder / "history" / f"{digest_of(task.workload_key)[:16]}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines))
    return str(path)


def _own(work: Work, task: ExtractedTask) -> list[Record]:
    key = RecordKey(workload_key=task.workload_key, **record_identity(work))
    with work.database.reading() as session:
        known = records.of_key(session, key)
    # Others' failures may be due to their time limits; their successes need no second measurement.
    return [
        record
        for record in known
        if record.tuner == str(work.tuner) and (record.error is None or record.job_id == work.job.id)
    ]


def _others(work: Work, task: ExtractedTask) -> list[Record]:
    """Of other workloads of the same kind."""
    if work.tuner is not Tuner.AUTOTVM or not work.request.tuner_options.transfer:
        return []
    with work.database.reading() as session:
        return records.transfer_candidates(
            session,
            task.name,
            excluding_workload=task.workload_key,
            **record_identity(work),
            tuner=str(work.tuner),
            limit=_TRANSFERRED,
        )
