"""A job's convergence, read from its records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from api.dashboard import convergence
from api.dashboard.convergence import Curve, Point, Search
from domain.artifacts import Variant
from domain.events import EventKind, JobEvent
from domain.jobs import Job, Precision, Stage
from domain.tuning_tasks import TuningTask
from storage import artifacts, events, stages, trials, tuning_tasks
from storage.tables import digest_of

_MOST_EVENTS = 500
_NEWEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Level:
    """Seconds of one run of what tuned builds are compared with: the benchmark's where it has ended.

    Before, what the baseline stage measured in fewer runs.
    """

    untuned: float | None
    reference: float | None
    reference_name: str
    is_final: bool
    """Whether the benchmark measured them."""


@dataclass(frozen=True, kw_only=True)
class Convergence:
    curve: Curve
    tasks: list[TuningTask]
    level: Level
    defaults: dict[int, float]
    """Seconds of the default schedule by position of the task."""
    events: list[JobEvent]
    """Of stages, and notes."""

    @property
    def basis(self) -> str:
        """Of what the whole curve depends on: with another one, points that were told before do not hold."""
        return f"{len(self.tasks)}-{len(self.defaults)}-{'end' if self.level.is_final else 'begin'}"


def read(session: Session, job: Job) -> Convergence:
    tasks = tuning_tasks.of_job(session, job.id)
    positions = {digest_of(task.extracted.workload_key): task.extracted.position for task in tasks}
    told = events.of_kinds(session, job.id, [EventKind.STAGE, EventKind.NOTE], _MOST_EVENTS)
    level = _level(session, job)
    firsts = trials.first_ever(session, positions, job.placement) if job.placement else {}
    defaults = convergence.defaults(firsts) if job.request.precision is Precision.F32 else {}
    search = Search(
        tasks,
        untuned=level.untuned,
        known=_known(session, job, positions),
        defaults=defaults,
        began_at=_began(told),
    )
    return Convergence(
        curve=search.follow(trials.of_job(session, job.id)),
        tasks=tasks,
        level=level,
        defaults={positions[digest]: latency for digest, latency in defaults.items()},
        events=told,
    )


def as_json(found: Convergence, *, after: int, basis: str | None) -> dict[str, Any]:
    """For plots: what came after so many trials, or all of it to whoever has none, or has it on another basis."""
    if basis != found.basis:
        after = 0
    curve = found.curve
    told: dict[str, Any] = {
        "after": after,
        "basis": found.basis,
        "trials": curve.trials,
        "estimate": _later(curve.estimate, after),
        "tasks": {str(position): later for position, points in curve.tasks.items() if (later := _later(points, after))},
    }
    if not after:
        names = {str(task.extracted.position): task.extracted.description for task in found.tasks}
        told |= {"names": names, **asdict(found.level)}
    return told


def _later(points: list[Point], after: int) -> list[Point]:
    return [point for point in points if point[0] > after] if after else points


def _level(session: Session, job: Job) -> Level:
    artifact = artifacts.of_job(session, job.id) if job.artifact_id else None
    if artifact is not None and artifact.report.timings:
        medians = {variant: timing.median for variant, timing in artifact.report.timings.items()}
        return Level(
            untuned=medians.get(Variant.UNTUNED),
            reference=medians.get(Variant.REFERENCE),
            reference_name=artifact.report.compared_with,
            is_final=True,
        )
    seconds = (stages.outcome(session, job.id, Stage.BASELINE) or {}).get("seconds", {})
    untuned, reference = seconds.get("untuned"), seconds.get("reference")
    return Level(untuned=untuned, reference=reference, reference_name="Reference", is_final=False)


def _known(session: Session, job: Job, digests: Collection[str]) -> dict[str, float]:
    """Best latencies that others had found before the job's first record, by workload digest."""
    first = trials.first_id(session, job.id)
    if job.placement is None:
        return {}
    return trials.best_before(session, digests, job.placement, record_id=_NEWEST if first is None else first)


def _began(told: Sequence[JobEvent]) -> datetime | None:
    """When tuning first began."""
    starts = (event for event in told if event.data.get("stage") == Stage.TUNE and event.data["status"] == "started")
    first = next(starts, None)
    return first.at if first else None
