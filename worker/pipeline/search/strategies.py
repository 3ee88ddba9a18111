"""The ways to tune a model among which a job's budget is divided: a tuner, and how it sees convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from domain.jobs import Precision, Tuner
from domain.stage_results import Strategy
from domain.targets import kind_of
from domain.tuning_tasks import ExtractedTask
from storage import records
from tuner.search import precisions, racing
from worker.pipeline import placing, reuse
from worker.pipeline.context import Work

_OTHER_LAYOUT = "NCHW"
"""What MetaSchedule may try on CPUs besides NHWC, which suits most networks there."""


def of_job(work: Work) -> list[Strategy]:
    """All that the request allows and that import the model rightly, the preferred one first."""
    usable = placing.usable(work)
    found = [Strategy(tuner=tuner) for tuner in usable if tuner in precisions.first(work.request).tuners]
    known = {arm.tuner for arm in found}
    layouts = Tuner.METASCHEDULE in known and work.request.tuner_options.layout is None
    if layouts and kind_of(work.target.text) == "llvm":
        found.append(Strategy(tuner=Tuner.METASCHEDULE, layout=_OTHER_LAYOUT))
    # Small budgets reach for few arms, and a narrower precision gains more than another tuner.
    return [*found[:1], *_narrower(work, usable), *found[1:]]


def _narrower(work: Work, usable: Sequence[Tuner]) -> list[Strategy]:
    """With precision ``auto``, beside f32: whatever the target has instructions for, by the tuner that uses them."""
    if work.request.precision is not Precision.AUTO:
        return []
    return [
        Strategy(tuner=tuner, precision=precision)
        for precision in considered(work)[1:]
        for tuner in precision.tuners[:1]
        if tuner in usable
    ]


def considered(work: Work) -> tuple[Precision, ...]:
    """Precisions to build in, the usual one first."""
    usual = precisions.first(work.request)
    return (usual, *(each for each in work.results.imported.precisions if each is not usual))


def view(work: Work, arm: Strategy) -> Work:
    """The job as it is when this arm leads, for builds and lookups beside the one that does."""
    request = work.request
    if arm.layout is not None:
        request = replace(request, tuner_options=replace(request.tuner_options, layout=arm.layout))
    if arm.precision is not None:
        request = replace(request, precision=arm.precision)
    return replace(work, tuner=arm.tuner, job=replace(work.job, request=request))


def lead(work: Work, arm: Strategy) -> Work:
    """The job with this arm leading, for whoever looks at it too. Raises LeaseLost."""
    return placing.lead(view(work, arm), arm.tuner)


def estimate(work: Work, extracted: Sequence[ExtractedTask], defaults: Mapping[str, float]) -> float | None:
    """Seconds that one run of the model would take with the best records of the leading arm, whoever measured them.

    ``defaults``: seconds of what an untuned build does, by workload, where they were measured. None without records.
    """
    untuned = work.results.baseline.engines.get(work.engine)
    if untuned is None:
        return None
    if precisions.first(work.request) is not work.results.imported.precisions[0]:
        # They are those of another untuned build than the one that is gained on.
        defaults = {}
    keys = [task.workload_key for task in extracted]
    with work.database.reading() as session:
        best = records.best_of_many(session, keys, **reuse.record_identity(work), tuner=str(work.tuner))
    latencies = {key: record.latency for key, record in best.items() if record.latency is not None}
    return racing.estimate(untuned, [_operator(each, defaults, latencies) for each in _by_operator(extracted)])


def _by_operator(extracted: Sequence[ExtractedTask]) -> list[list[ExtractedTask]]:
    """Alternatives together."""
    found: dict[object, list[ExtractedTask]] = {}
    for task in extracted:
        found.setdefault(task.workload_key if task.alternatives is None else task.alternatives, []).append(task)
    return list(found.values())


def _operator(
    tasks: Sequence[ExtractedTask], defaults: Mapping[str, float], latencies: Mapping[str, float]
) -> racing.OperatorLatency:
    """What an untuned build does and the fastest that was found, of all ways to compute it."""
    keys = [task.workload_key for task in tasks]
    return racing.OperatorLatency(
        weight=max(task.weight for task in tasks),
        flop=max(task.flop for task in tasks),
        default=min((defaults[key] for key in keys if key in defaults), default=None),
        best=min((latencies[key] for key in keys if key in latencies), default=None),
    )
