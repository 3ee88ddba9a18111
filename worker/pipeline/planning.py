"""Stage ``plan``: which tuner leads, the model's tuning tasks, and how many trials each is to get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from domain import errors
from domain.tuning_tasks import ExtractedTask
from storage import jobs, rates, records, tuning_tasks
from worker.pipeline import beginning, candidates, covering, extraction, scouting
from worker.pipeline.work import Outcome, Work

TOLD = (
    "tuner", "tasks", "covered", "trials_planned", "trials_on_record", "passed_over", "elsewhere",
    "budget_seconds", "estimated_seconds",
)  # fmt: skip
"""What watchers are told of the outcome."""


def run(work: Work) -> Outcome:
    """Raises EngineError when no tuner that may serve the job extracts its tasks."""
    work, extracted, choice = _extract(work)
    scouted = scouting.run(work)
    choice += scouted.choice
    leader = scouted.arms[0].tuner
    if leader is not work.tuner:
        work = beginning.lead(work, leader)
        extracted = extraction.tasks(work)
    racing = {arm.tuner.engine for arm in scouted.arms}
    for name in work.toolchains:
        if name not in racing:
            work.engines.close(name, role="main")
    with work.database.transaction() as session:
        work.keeper.require(jobs.holds(session, work.job.id, work.lease))
        outcome = _plan(session, work, extracted)
    return {"tuner": str(work.tuner), "choice": choice, "arms": [arm.dump() for arm in scouted.arms], **outcome}


def _extract(work: Work) -> tuple[Work, list[ExtractedTask], list[str]]:
    """With the first tuner that finds any tasks, or that finds none where all do not."""
    choice: list[str] = []
    found: list[tuple[Work, list[ExtractedTask]]] = []
    failure: errors.TunesmithError | None = None
    tuners = candidates.usable(work)
    for tuner in tuners:
        led = beginning.lead(work, tuner)
        try:
            extracted = extraction.tasks(led)
        except errors.TunesmithError as error:
            work.keeper.check()
            if len(tuners) == 1:
                raise
            failure = failure or error
            choice.append(f"{tuner} cannot find tuning tasks: {error.message[:300].rstrip('.')}.")
            work.note(choice[-1])
            continue
        if extracted:
            return led, extracted, choice
        choice.append(f"{tuner} finds nothing to tune in the model.")
        found.append((led, extracted))
    if found:
        led, extracted = found[0]
        return beginning.lead(work, led.tuner), extracted, choice if len(tuners) > 1 else []
    raise failure or errors.EngineNotInstalled("no engine is left that could tune the model")


def _plan(session: Session, work: Work, extracted: Sequence[ExtractedTask]) -> dict[str, Any]:
    identity = covering.record_identity(work)
    keys = [task.workload_key for task in extracted]
    planned, seconds = covering.allot(session, work, extracted)
    tuning_tasks.save_plan(session, work.job.id, planned)
    trials = sum(task.trials_planned for task in planned)
    done, beside = records.count_of_job(session, work.job.id), covering.trials_beside(session, work, keys)
    jobs.set_progress(session, work.job.id, work.lease, trials_done=done, trials_planned=trials + beside)
    open_keys = [task.extracted.workload_key for task in planned if task.trials_planned]
    return {
        "tasks": len(planned),
        "covered": len(planned) - len(open_keys),
        "trials_planned": trials,
        "trials_on_record": sum(records.counts_of_many(session, keys, **identity).values()),
        "passed_over": records.passed_over(session, keys, **identity),
        "elsewhere": covering.elsewhere(session, work, open_keys),
        "budget_seconds": seconds,
        "estimated_seconds": _estimate(session, work, trials, seconds),
    }


def _estimate(session: Session, work: Work, trials: int, seconds: float | None) -> float:
    """Of tuning."""
    known = rates.seconds_a_trial(
        session,
        device_key=work.device.key,
        toolchain=covering.record_identity(work)["toolchain"],
        tuner=str(work.tuner),
    )
    needed = trials * (known or rates.SECONDS_A_TRIAL)
    return needed if seconds is None else min(needed, seconds)
