"""Stage ``plan``: select the strategies, extract the tuning tasks, and divide the trials among them.

A small budget is not spent on comparing tuners: the first tuner of the fastest correct engine gets all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import Tuner
from domain.stage_results import BaselineResult, PlanResult, Strategy
from domain.tuning_tasks import ExtractedTask
from storage import codec, jobs, records, tuning_tasks
from tuner.search import racing
from worker.engines import MAIN
from worker.pipeline import placing, recovery, reuse
from worker.pipeline.context import JobContext
from worker.pipeline.search import mixing, strategies

_PUBLIC = (
    "tuner", "tasks", "covered", "trials_planned", "trials_on_record", "passed_over", "elsewhere",
    "budget_seconds", "estimated_seconds",
)  # fmt: skip
"""Fields of the result that the stage's event shows."""
_MOST_NOISE = 2.0
"""Ratio of rough times from which the slower one is slower."""


def run(context: JobContext) -> PlanResult:
    """Raises EngineError when no tuner that may serve the job extracts its tasks."""
    try:
        context, extracted, choice = _extract(context)
        selection = _select(context)
    except errors.TimeLimit as error:
        recovery.tolerate(context, error)
        sentence = f"Nothing was tuned: {error.message}."
        context.note(sentence)
        extracted, choice, selection = [], [sentence], _Selection(strategies=[Strategy(tuner=context.tuner)], choice=[])
    choice += selection.choice
    leader = selection.strategies[0].tuner
    if leader is not context.tuner:
        context = placing.lead(context, leader)
        extracted = reuse.tasks_of(context)
    racing = {strategy.tuner.engine for strategy in selection.strategies}
    for name in context.toolchains:
        if name not in racing:
            context.engines.close(name, role=MAIN)
    with context.transaction() as session:
        return _plan(session, context, extracted, selection, choice=tuple(choice))


def event_data(result: PlanResult) -> dict[str, Any]:
    """The plan's part of the event that ends the stage."""
    stored = codec.dump(result)
    return {name: stored[name] for name in _PUBLIC}


def _extract(context: JobContext) -> tuple[JobContext, list[ExtractedTask], list[str]]:
    """Extract tasks with the first tuner that finds any, or the first that finds none if no tuner finds any."""
    choice: list[str] = []
    found: list[tuple[JobContext, list[ExtractedTask]]] = []
    failure: errors.TunesmithError | None = None
    tuners = placing.usable(context)
    for tuner in tuners:
        led = placing.lead(context, tuner)
        try:
            with context.limit.alternative(last=tuner is tuners[-1]):
                extracted = reuse.tasks_of(led)
        except errors.TunesmithError as error:
            recovery.tolerate(context, error)
            if len(tuners) == 1:
                raise
            failure = error if failure is None or isinstance(error, errors.TimeLimit) else failure
            choice.append(f"{tuner} cannot find tuning tasks: {error.message[:300].rstrip('.')}.")
            context.note(choice[-1])
            continue
        if extracted:
            return led, extracted, choice
        choice.append(f"{tuner} finds nothing to tune in the model.")
        found.append((led, extracted))
    if found:
        led, extracted = found[0]
        return placing.lead(context, led.tuner), extracted, choice if len(tuners) > 1 else []
    raise failure or errors.EngineNotInstalled("no engine can tune the model")


def _plan(
    session: Session,
    context: JobContext,
    extracted: Sequence[ExtractedTask],
    selection: _Selection,
    *,
    choice: tuple[str, ...],
) -> PlanResult:
    identity = reuse.record_identity(context)
    keys = [task.workload_key for task in extracted]
    planned, seconds = reuse.allot(session, context, extracted)
    tuning_tasks.save_plan(session, context.job.id, planned)
    trials = sum(task.trials_planned for task in planned)
    done, beside = records.count_of_job(session, context.job.id), reuse.trials_beside(session, context, keys)
    jobs.set_progress(session, context.job.id, context.lease, trials_done=done, trials_planned=trials + beside)
    open_keys = [task.extracted.workload_key for task in planned if task.trials_planned]
    return PlanResult(
        tuner=context.tuner,
        strategies=tuple(selection.strategies),
        reserves=tuple(selection.reserves),
        choice=choice,
        tasks=len(planned),
        covered=len(planned) - len(open_keys),
        trials_planned=trials,
        trials_on_record=sum(records.counts_of_many(session, keys, **identity).values()),
        passed_over=records.passed_over(session, keys, **identity),
        elsewhere=reuse.elsewhere(session, context, open_keys),
        budget_seconds=seconds,
        estimated_seconds=_estimate(session, context, trials, context.limit.cut_seconds(seconds)),
    )


def _estimate(session: Session, context: JobContext, trials: int, seconds: float | None) -> float:
    """Seconds of tuning."""
    known = records.seconds_a_trial(
        session,
        device_key=context.device.key,
        toolchain=reuse.record_identity(context)["toolchain"],
        tuner=str(context.tuner),
    )
    needed = trials * (known or records.SECONDS_A_TRIAL)
    return needed if seconds is None else min(needed, seconds)


@dataclass(frozen=True, kw_only=True)
class _Selection:
    strategies: list[Strategy]
    """The leading one first; only that one if none compete with it."""
    choice: list[str]
    """Sentences for the report."""
    reserves: list[Strategy] = field(default_factory=list)
    """Strategies for when those expect nothing more."""


def _select(context: JobContext) -> _Selection:
    """Raises LeaseLost."""
    known = strategies.of_job(context)
    if not context.measures:
        return _most_records(context) if len(known) > 1 else _Selection(strategies=known, choice=[])
    covered = _covered(context)
    # Records of f32 do not cover a narrower precision.
    if covered is not None and all(
        _is_covered(strategies.view(context, strategy)) for strategy in known if strategy.precision
    ):
        sentence = f"{covered} leads: earlier searches cover all of its tasks."
        return _Selection(
            strategies=[Strategy(tuner=covered)], choice=[sentence] if len(placing.usable(context)) > 1 else []
        )
    return _affordable(context, known)


def _affordable(context: JobContext, known: Sequence[Strategy]) -> _Selection:
    budget = context.limit.cut(context.request.budget)
    rivals = racing.has_rivals(budget)
    most = racing.entrants(budget)
    level = _level(context, known)
    # A narrower precision is always allowed: its gain follows from the arithmetic.
    allowed = [
        strategy for strategy in known if rivals or strategy is known[0] or strategy.precision or strategy in level
    ]
    raced = allowed[:most]
    reserves = strategies.in_reserve(context, raced) if most > 1 else []
    mixed = mixing.strategy(context, raced) if most > 1 else None
    reserves = [mixed, *reserves] if mixed else reserves
    others = len(placing.usable(context)) > 1
    if len(raced) > 1:
        names = ", ".join(strategy.name for strategy in raced)
        sentence = f"These strategies compete for the budget: {names}."
        return _Selection(strategies=raced, choice=[sentence], reserves=reserves)
    sentence = (
        f"{context.tuner} leads: no other engine is clearly faster untuned, "
        "and the budget is too small to compare more."
    )
    # If no tuner found anything to tune, that was reported already.
    choice = [sentence] if others and reuse.known(context) else []
    return _Selection(strategies=raced, choice=choice, reserves=reserves)


def _level(context: JobContext, known: Sequence[Strategy]) -> list[Strategy]:
    """The first strategy of each other engine whose untuned build is not slower than that of the leading engine, as far
    as their rough times tell."""
    baseline, leader = context.results.baseline, known[0].tuner.engine
    engines = {
        name
        for name, (least, _) in baseline.ranges.items()
        if leader in baseline.ranges and least <= baseline.ranges[leader][1] and _is_near(baseline, name, leader)
    }
    found: dict[str, Strategy] = {}
    for strategy in known:
        if strategy.tuner.engine in engines - {leader}:
            found.setdefault(strategy.tuner.engine, strategy)
    return [*found.values()]


def _is_near(baseline: BaselineResult, engine: str, leader: str) -> bool:
    """Whether noise could have reversed the times, of which one outlier makes ranges overlap."""
    seconds, least = baseline.start(engine), baseline.start(leader)
    return seconds is not None and least is not None and seconds < least * _MOST_NOISE


def _covered(context: JobContext) -> Tuner | None:
    """The preferred tuner among those whose tasks other jobs have searched as far as this budget would; or None."""
    return next(
        (tuner for tuner in placing.usable(context) if _is_covered(strategies.view(context, Strategy(tuner=tuner)))),
        None,
    )


def _is_covered(led: JobContext) -> bool:
    extracted = reuse.known(led)
    if not extracted:
        return False
    with led.database.reading() as session:
        planned, _ = reuse.allot(session, led, extracted)
    return any(task.best_latency for task in planned) and not any(task.trials_planned for task in planned)


def _most_records(context: JobContext) -> _Selection:
    """Select the tuner with records for most of its tasks, measured ones or the owner's imports, for a job that
    measures nothing."""
    found: dict[Tuner, int] = {}
    for tuner in placing.usable(context):
        led = placing.lead(context, tuner)
        try:
            keys = [task.workload_key for task in reuse.tasks_of(led)]
        except errors.TunesmithError as error:
            recovery.tolerate(context, error)
            continue
        with context.database.reading() as session:
            measured = records.best_of_many(session, keys, **reuse.record_identity(led))
            found[tuner] = len(measured.keys() | reuse.imported(session, led, keys, tuner=tuner, most=1).keys())
    best = max(found, key=lambda tuner: found[tuner], default=context.tuner)
    sentences = [f"{tuner} has records for {count} tasks." for tuner, count in found.items()]
    return _Selection(strategies=[Strategy(tuner=best)], choice=sentences if len(placing.usable(context)) > 1 else [])
