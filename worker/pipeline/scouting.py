"""Which tuner leads, and which others race with it for the budget.

A small budget is not spent on finding out: then the first tuner of the fastest correct engine has it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain import errors
from domain.jobs import Tuner
from storage import records
from tuner import racing
from worker.pipeline import arms, beginning, candidates, covering, extraction
from worker.pipeline.arms import Arm
from worker.pipeline.work import Work


@dataclass(frozen=True, kw_only=True)
class Scouted:
    arms: list[Arm]
    """The leading one first; alone where nothing is to be raced."""
    choice: list[str]
    """Sentences for the report."""


def run(work: Work) -> Scouted:
    """Raises LeaseLost."""
    known = arms.of_job(work)
    if len(known) == 1:
        return Scouted(arms=known, choice=[])
    if not work.measures:
        return _most_records(work)
    covered = _covered(work)
    # What is known of f32 says nothing of a narrower precision.
    if covered is not None and all(_is_covered(arms.view(work, arm)) for arm in known if arm.precision):
        said = f"{covered} leads: earlier searches cover all that it would search."
        return Scouted(arms=[Arm(tuner=covered)], choice=[said] if len(candidates.usable(work)) > 1 else [])
    return _affordable(work, known)


def _affordable(work: Work, known: Sequence[Arm]) -> Scouted:
    budget = work.request.budget
    rivals = racing.has_rivals(budget)
    # A narrower precision is no rival: what it gains is known from the arithmetic.
    allowed = [arm for arm in known if rivals or arm is known[0] or arm.precision]
    raced = allowed[: racing.entrants(budget)]
    others = len(candidates.usable(work)) > 1
    if len(raced) > 1:
        names = ", ".join(arm.name for arm in raced)
        return Scouted(arms=raced, choice=[f"The budget is raced for by {names}."])
    said = f"{work.tuner} leads: no other engine is clearly faster untuned, and the budget is too small to try more."
    # Where no tuner finds anything to tune, which was told already, none leads for a reason.
    return Scouted(arms=raced, choice=[said] if others and extraction.known(work) else [])


def _covered(work: Work) -> Tuner | None:
    """A tuner whose tasks others have searched as hard as this budget would; of several the preferred one."""
    return next((tuner for tuner in candidates.usable(work) if _is_covered(arms.view(work, Arm(tuner=tuner)))), None)


def _is_covered(led: Work) -> bool:
    extracted = extraction.known(led)
    if not extracted:
        return False
    with led.database.reading() as session:
        planned, _ = covering.allot(session, led, extracted)
    return any(task.best_latency for task in planned) and not any(task.trials_planned for task in planned)


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
    said = [f"{tuner} has records for {count} tasks." for tuner, count in found.items()]
    return Scouted(arms=[Arm(tuner=best)], choice=said if len(candidates.usable(work)) > 1 else [])
