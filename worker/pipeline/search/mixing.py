"""Mixing of tuners in one build: Ansor's schedules for the operators that AutoTVM has no templates for.

Such operators (normalizations, softmax, pooling, chains of elementwise operators) keep TVM's default schedules in
builds of AutoTVM, whatever its budget. Their tasks are extracted from such a build, so its layouts stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from domain.jobs import Tuner
from domain.records import Record
from domain.search_parts import SearchPart
from domain.stage_results import Build, Strategy
from domain.tuning_tasks import ExtractedTask
from storage import records
from tuner.results import in_network
from worker.pipeline import in_place, placing, reuse
from worker.pipeline.context import JobContext
from worker.pipeline.search import strategies

MIXED = Strategy(tuner=Tuner.ANSOR, beside=Tuner.AUTOTVM)
_LEAST_SHARE = 0.05
"""Share of the untuned network's time, of operators without templates, from which they are searched."""
DUE = 0.3
"""Share of the budget that is left when they are searched at the latest, although AutoTVM still gains."""


def is_possible(context: JobContext) -> bool:
    """Whether the request allows both tuners, and their engine builds the model correctly."""
    return {*placing.usable(context)} >= {MIXED.tuner, MIXED.beside}


def strategy(context: JobContext, raced: Sequence[Strategy]) -> Strategy | None:
    """Return the strategy that mixes tuners in the builds of one that is ``raced``; None if that is not worthwhile.

    Raises Canceled and LeaseLost.
    """
    if not context.settings.searches_with(SearchPart.MIXING):
        return None
    led = any(each.tuner is MIXED.beside and each.precision is None for each in raced)
    if not led or not is_possible(context):
        return None
    layers = in_place.layers(strategies.view(context, MIXED))
    return MIXED if in_network.share_of_others(layers) >= _LEAST_SHARE else None


def estimate(
    context: JobContext, extracted: Sequence[ExtractedTask], untuned: Mapping[str, float], base: float | None
) -> float | None:
    """Return the seconds of one run with the leading strategy's best records added to a build that takes ``base``.

    ``untuned`` are the seconds of operators in the untuned build, by workload; others gain nothing.
    """
    if base is None:
        return None
    weights = {task.workload_key: task.weight for task in extracted}
    with context.database.reading() as session:
        best = records.best_of_many(session, [*weights], **reuse.record_identity(context), tuner=str(context.tuner))
    gains = (
        weights[key] * max(0.0, untuned[key] - record.latency)
        for key, record in best.items()
        if key in untuned and record.latency is not None
    )
    return max(0.0, base - math.fsum(gains)) if best else None


def useful_records(context: JobContext, build: Build) -> list[Record]:
    """Return the records of the build's second tuner that beat the default schedules, fastest first for each."""
    if build.mixed is None:
        return []
    view = strategies.view(context, Strategy(tuner=build.mixed, beside=build.tuner))
    untuned = in_place.seconds(view, reuse.known(view) or [])
    return [
        record
        for record in reuse.best_records(view)
        if record.latency is not None
        and record.latency < (1 - in_network.LEAST_GAIN) * untuned.get(record.key.workload_key, 0.0)
    ]


def tasks(context: JobContext, build: Build) -> list[ExtractedTask]:
    """Return the tuning tasks of the build's second tuner."""
    if build.mixed is None:
        return []
    return reuse.known(strategies.view(context, Strategy(tuner=build.mixed, beside=build.tuner))) or []
