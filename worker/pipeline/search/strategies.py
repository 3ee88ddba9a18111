"""The strategies that share a job's budget: a tuner with a layout of convolutions and a precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from domain.jobs import CALIBRATED, Precision, Tuner
from domain.search_parts import SearchPart
from domain.stage_results import Strategy
from domain.targets import kind_of
from domain.tuning_tasks import ExtractedTask
from storage import records
from tuner.search import precisions, racing
from worker.pipeline import placing, reuse
from worker.pipeline.context import JobContext

_OTHER_LAYOUT = "NCHW"
"""Second layout of MetaSchedule on CPUs; NHWC, the first, suits most networks there."""


def of_job(context: JobContext) -> list[Strategy]:
    """Strategies that the request allows and whose engines build the model correctly, the preferred one first."""
    usable = placing.usable(context)
    found = [Strategy(tuner=tuner) for tuner in usable]
    known = {strategy.tuner for strategy in found}
    # Convolutions in NCHW are computed in float32.
    is_wide = precisions.first(context.request) not in CALIBRATED
    layouts = Tuner.METASCHEDULE in known and context.request.tuner_options.layout is None and is_wide
    if layouts and kind_of(context.target.text) == "llvm":
        found.append(Strategy(tuner=Tuner.METASCHEDULE, layout=_OTHER_LAYOUT))
    # Small budgets allow few strategies, and a narrower precision gains more than another tuner.
    return [*found[:1], *_narrower(context, usable), *found[1:]]


def in_reserve(context: JobContext, raced: Sequence[Strategy]) -> list[Strategy]:
    """Strategies to go on with where those that are ``raced`` expect nothing more, the closest one first."""
    if not context.settings.searches_with(SearchPart.HAND_OVER):
        return []
    found = [strategy for strategy in of_job(context) if strategy not in raced]
    options = context.request.tuner_options
    if options.keep_layout and kind_of(context.target.text) == "llvm":
        held = (strategy for strategy in raced if strategy.tuner is Tuner.AUTOTVM)
        found = [*(replace(strategy, free_layout=True) for strategy in held), *found]
    return found


def _narrower(context: JobContext, usable: Sequence[Tuner]) -> list[Strategy]:
    """With precision ``auto``: each narrower precision that an engine builds, with the first tuner that has it."""
    if context.request.precision is not Precision.AUTO:
        return []
    able = context.results.imported.able
    found = {
        precision: [each for each in usable if each in precision.tuners and each.engine in able.get(str(precision), ())]
        for precision in considered(context)[1:]
    }
    return [Strategy(tuner=tuners[0], precision=precision) for precision, tuners in found.items() if tuners]


def considered(context: JobContext) -> tuple[Precision, ...]:
    """Precisions to build in, the default one first."""
    usual = precisions.first(context.request)
    return (usual, *(each for each in context.results.imported.precisions if each is not usual))


def view(context: JobContext, strategy: Strategy) -> JobContext:
    """The context as if this strategy led, for its builds and lookups."""
    request = context.request
    options = request.tuner_options
    if strategy.layout is not None:
        options = replace(options, layout=strategy.layout)
    if strategy.free_layout:
        options = replace(options, keep_layout=False)
    request = replace(request, tuner_options=options)
    if strategy.precision is not None:
        request = replace(request, precision=strategy.precision)
    return replace(context, tuner=strategy.tuner, beside=strategy.beside, job=replace(context.job, request=request))


def limit_seconds(context: JobContext) -> float | None:
    """Seconds of tuning for all strategies of the plan together; None without a limit.

    The plan deducts what other jobs have spent on the leading strategy's tasks, which is no reason to search a narrower
    precision less: with one, each strategy is limited by its own tasks' shares instead.
    """
    plan = context.results.plan
    narrower = len(plan.strategies) > 1 and any(strategy.precision for strategy in plan.strategies)
    return context.request.budget.seconds if narrower else plan.budget_seconds


def lead(context: JobContext, strategy: Strategy) -> JobContext:
    """Make this strategy the leading one, also in the database. Raises LeaseLost."""
    return placing.lead(view(context, strategy), strategy.tuner)


def estimate(context: JobContext, extracted: Sequence[ExtractedTask], defaults: Mapping[str, float]) -> float | None:
    """Seconds that one run of the model would take with the leading strategy's best records, from any job.

    ``defaults``: seconds of default schedules, by workload, where they were measured. None without records.
    """
    untuned = context.results.baseline.start(context.engine)
    if untuned is None:
        return None
    if precisions.first(context.request) is not context.results.imported.precisions[0]:
        # The defaults belong to an untuned build of another precision.
        defaults = {}
    keys = [task.workload_key for task in extracted]
    with context.database.reading() as session:
        best = records.best_of_many(session, keys, **reuse.record_identity(context), tuner=str(context.tuner))
    latencies = {key: record.latency for key, record in best.items() if record.latency is not None}
    return racing.estimate(untuned, [_operator(each, defaults, latencies) for each in _by_operator(extracted)])


def _by_operator(extracted: Sequence[ExtractedTask]) -> list[list[ExtractedTask]]:
    """Group alternative ways to compute the same operator."""
    found: dict[object, list[ExtractedTask]] = {}
    for task in extracted:
        found.setdefault(task.workload_key if task.alternatives is None else task.alternatives, []).append(task)
    return list(found.values())


def _operator(
    tasks: Sequence[ExtractedTask], defaults: Mapping[str, float], latencies: Mapping[str, float]
) -> racing.OperatorLatency:
    """The default and the best latency over all alternatives."""
    keys = [task.workload_key for task in tasks]
    return racing.OperatorLatency(
        weight=max(task.weight for task in tasks),
        flop=max(task.flop for task in tasks),
        default=min((defaults[key] for key in keys if key in defaults), default=None),
        best=min((latencies[key] for key in keys if key in latencies), default=None),
    )
