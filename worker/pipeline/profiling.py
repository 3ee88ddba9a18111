"""Profiles of builds; that of the published one, beside the reference's and OpenVINO's, ends stage ``benchmark``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from domain import errors, progress
from domain.artifacts import Report, Runtime, Variant
from domain.models import ModelFormat
from domain.ports import Engine
from domain.profiles import Profile
from storage import tuning_tasks
from tuner.host import catalogue
from tuner.results import peaks, profiles
from tuner.results.profiles import Task
from worker.engines import ONNX
from worker.pipeline import builds, recovery
from worker.pipeline.context import JobContext

_SIDE_SECONDS = 1.0
"""Wanted duration of the profiled runs of one side."""
_SIDE_SHARE = 1 / 120
"""Of the tuning budget, for the same, whichever is less."""
_RUNS = (5, 50)
"""Least and most profiled runs."""
_RUNS_EACH = 4
"""Runs for each profiled one: itself, the timed ones in between, and what warms up."""
_MOST_SECONDS = 30.0
_TIMEOUT_SECONDS = 120.0


def measure(context: JobContext, report: Report) -> Profile | str:
    """Return the profile of the published build, or why there is none. A failure does not fail the job.

    OpenVINO is profiled beside the reference, on its model, if it is installed, one of the job's runtimes, and right.
    """
    hindrance = _hindrance(context, report)
    if hindrance:
        return hindrance
    try:
        with context.exclusive_device():
            return _measure(context, report)
    except errors.EngineError as error:
        recovery.tolerate(context, error)
        reason = f"the profile failed: {error.message[:500]}"
        context.note(reason)
        return reason


def _hindrance(context: JobContext, report: Report) -> str | None:
    if not context.measures or not context.reference_shares_device:
        return "nothing was measured on the worker's CPU"
    if context.model.facts.format is not ModelFormat.ONNX:
        return "ONNX Runtime, which a profile is compared with, does not run IRModules"
    if not {report.published, Variant.REFERENCE} <= report.timings.keys():
        return "the build or ONNX Runtime was not timed"
    if not builds.process_of(context, report.published).is_library:
        return "the build needs TVM, and only libraries are profiled"
    seconds = math.fsum(_seconds(report, each) for each in (report.published, Variant.REFERENCE))
    if duration(seconds, 0.0) > min(_MOST_SECONDS, context.limit.unspent / 2):
        return "a profile would have taken too long"
    return None


def _measure(context: JobContext, report: Report) -> Profile:
    variant = report.published
    process = builds.process_of(context, variant)
    bundle = {"bundle": str(builds.folder(context, variant))}
    reference = {"path": str(context.prepared)}
    return profiles.make(
        build=_ask(context, process.get(), bundle, _seconds(report, variant)),
        reference=_ask(context, context.engines.get(ONNX), reference, _seconds(report, Variant.REFERENCE)),
        tasks=_tasks(context),
        peak=peaks.measure(context.threads),
        variant=str(variant),
        compared_with=report.compared_with,
        threads=context.threads,
        precision=report.precision,
        openvino=_of_openvino(context, report),
    )


def _of_openvino(context: JobContext, report: Report) -> dict[str, Any] | None:
    """Return OpenVINO's profile of the reference's model; None if it does not run or is wrong there."""
    name = str(Runtime.OPENVINO)
    known = [contender.verified for contender in report.portfolio if contender.name == name]
    if Runtime.OPENVINO not in context.request.runtimes or not all(known):
        return None
    role = "profile"
    try:
        engine = context.engines.get(catalogue.RUNNING[Runtime.OPENVINO], role=role)
        return _ask(context, engine, {"path": str(context.prepared)}, _seconds(report, Variant.REFERENCE))
    except errors.EngineNotInstalled:
        return None
    except errors.EngineError as error:
        recovery.tolerate(context, error, "OpenVINO was not profiled")
        return None
    finally:
        context.engines.close(catalogue.RUNNING[Runtime.OPENVINO], role=role)


def duration(run_seconds: float, wanted: float) -> float:
    """Return the seconds that a profile takes whose profiled runs last ``wanted`` seconds."""
    return _repeats(run_seconds, wanted) * _RUNS_EACH * run_seconds


def of_build(
    context: JobContext, process: builds.Process, *, run_seconds: float, wanted: float
) -> list[dict[str, Any]]:
    """Return the ``layers`` of a build's profile, whose profiled runs take about ``wanted`` seconds. Raises
    EngineError."""
    model = {"bundle": str(context.folder / process.folder)}
    found: list[dict[str, Any]] = _ask(context, process.get(), model, run_seconds, wanted)["layers"]
    return found


def _ask(
    context: JobContext, engine: Engine, model: dict[str, Any], seconds: float, wanted: float = _SIDE_SECONDS
) -> dict[str, Any]:
    inputs: Path = context.timed_inputs
    wanted = min(wanted, _SIDE_SHARE * progress.tuning_seconds(context.request.budget))
    params = {
        **model, "inputs": str(inputs), "threads": context.threads, "repeat": _repeats(seconds, wanted),
    }  # fmt: skip
    return engine.request("profile", params, timeout=_TIMEOUT_SECONDS, canceled=context.canceled)


def _repeats(run_seconds: float, wanted: float) -> int:
    least, most = _RUNS
    return min(most, max(least, math.ceil(wanted / max(run_seconds, 1e-6))))


def _seconds(report: Report, variant: Variant) -> float:
    return report.timings[variant].median


def _tasks(context: JobContext) -> list[Task]:
    with context.database.reading() as session:
        found = tuning_tasks.of_job(session, context.job.id)
    return [
        Task(position=task.extracted.position, description=task.extracted.description, seconds=task.best_latency)
        for task in found
        if task.best_latency is not None
    ]
