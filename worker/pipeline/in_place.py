"""Times of operators in the untuned build, inside the network: where a search starts.

Without them a search has to guess by floating-point operations how long an operator takes that it has not measured yet,
and depthwise convolutions take ten times as long for each operation as others.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from domain import errors
from domain.tuning_tasks import ExtractedTask
from tuner.results import in_network
from tuner.search import precisions
from worker.pipeline import builds, profiling, recovery
from worker.pipeline.context import JobContext

_SIDE_SECONDS = 0.25
"""Wanted duration of the profiled runs."""
_MOST_SECONDS = 5.0
"""Duration of all runs from which on there is no profile."""


def seconds(context: JobContext, extracted: Sequence[ExtractedTask]) -> dict[str, float]:
    """Return the seconds of one run of each task's operator in the untuned build of the leading engine, by workload.

    Operators that cannot be told apart by their sizes are left out, and all where ``layers`` has none. Raises Canceled
    and LeaseLost.
    """
    profile = layers(context)
    # Alternatives compute the same operator, and have the same sizes.
    groups: dict[str, list[ExtractedTask]] = {}
    for task in extracted:
        groups.setdefault(str(task.position if task.alternatives is None else task.alternatives), []).append(task)
    places = in_network.places(profile, {group: tasks[0].description for group, tasks in groups.items()})
    times = in_network.times([profile], places)
    return {task.workload_key: times[group] / len(places[group]) for group in places for task in groups[group]}


def layers(context: JobContext) -> list[dict[str, Any]]:
    """Return the ``layers`` of a profile of the leading engine's untuned build.

    Empty where that build is not a library that runs on this machine, or has another precision. Errors of engines are
    noted. Raises Canceled and LeaseLost.
    """
    process, untuned = _start(context)
    same = precisions.first(context.request) is context.results.imported.precisions[0]
    if not (untuned and same and context.reference_shares_device and process.is_library):
        return []
    if profiling.duration(untuned, _SIDE_SECONDS) > _MOST_SECONDS:
        return []
    try:
        return _layers(context, process, untuned)
    except errors.EngineError as error:
        recovery.tolerate(context, error, "operators of the untuned build were not timed")
        return []


def _start(context: JobContext) -> tuple[builds.Process, float | None]:
    """Return the build without records whose network is searched, and its seconds per run."""
    baseline, engine = context.results.baseline, context.engine
    if engine in baseline.rewritten:
        made = builds.rewritten(context, engine, precisions.first(context.request))
        return builds.process(context, made), baseline.rewritten[engine]
    return builds.untuned_process(context, engine), baseline.engines.get(engine)


def _layers(context: JobContext, process: builds.Process, untuned: float) -> list[dict[str, Any]]:
    """Return the build's profile; strategies of one engine, and later attempts, share it."""
    known = context.folder / f"{process.folder}-profile.json"
    # A power failure may have left an empty file.
    with contextlib.suppress(FileNotFoundError, ValueError):
        stored: list[dict[str, Any]] = json.loads(known.read_text())
        return stored
    with context.exclusive_device():
        layers = profiling.of_build(context, process, run_seconds=untuned, wanted=_SIDE_SECONDS)
    builds.write(known, [json.dumps(layers)])
    return layers
