"""Stage ``plan``: the model's tuning tasks, and how many trials each is to get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy.orm import Session

from domain.records import RecordKey
from domain.tuning_tasks import ExtractedTask
from storage import jobs, records, tuning_tasks
from tuner import planning
from tuner.planning import Coverage
from worker.pipeline.work import Outcome, Work

_EXTRACT_SECONDS = 1800.0


def run(work: Work) -> Outcome:
    params = {**work.compile_params, "options": asdict(work.request.tuner_options)}
    answer = work.ask(work.relay(), "extract", params, timeout=_EXTRACT_SECONDS)
    extracted = [ExtractedTask(**task) for task in answer["tasks"]]
    with work.database.transaction() as session:
        work.keeper.require(jobs.holds(session, work.job.id, work.lease))
        covered = _coverage(session, work, extracted)
        planned = planning.plan(
            work.job.id,
            extracted,
            work.request.budget,
            covered=covered,
            n_trial=work.request.tuner_options.n_trial,
        )
        tuning_tasks.save_plan(session, work.job.id, planned)
        trials = sum(task.trials_planned for task in planned)
        done = records.count_of_job(session, work.job.id)
        jobs.set_progress(session, work.job.id, work.lease, trials_done=done, trials_planned=trials)
    return {
        "tasks": len(planned),
        "covered": sum(task.trials_planned == 0 for task in planned),
        "trials_planned": trials,
    }


def _coverage(session: Session, work: Work, extracted: Sequence[ExtractedTask]) -> dict[str, Coverage]:
    """What others have measured; the job's own trials count against its plan, not beside it."""
    identity = record_identity(work)
    keys = [task.workload_key for task in extracted]
    best = records.best_of_many(session, keys, **identity)
    own = Counter(record.key for record in records.of_job(session, work.job.id))
    covered = {}
    for workload_key in keys:
        key = RecordKey(workload_key=workload_key, **identity)
        known = best.get(workload_key)
        trials = records.count(session, key) - own[key]
        covered[workload_key] = Coverage(trials=trials, best_latency=known.latency if known else None)
    return covered


def record_identity(work: Work) -> dict[str, str]:
    """What every lookup of records must match."""
    return {
        "target": work.placement.target.identity,
        "device_key": work.placement.device.key,
        "toolchain": work.placement.toolchain.identity,
    }
