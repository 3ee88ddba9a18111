"""A job's convergence, read from its records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from api.dashboard import convergence
from api.dashboard.convergence import Curve, Search
from domain.events import EventKind, JobEvent
from domain.jobs import Job, Precision, Stage
from domain.tuning_tasks import TuningTask
from storage import events, stages, trials, tuning_tasks
from storage.tables import digest_of

_MOST_EVENTS = 500
_NEWEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Convergence:
    curve: Curve
    after: int
    """The record that the curve follows; 0 for the whole one."""
    tasks: list[TuningTask]
    untuned: float | None
    """Seconds of one run, as the baseline stage measured it."""
    reference: float | None
    defaults: dict[int, float]
    """Seconds of the default schedule by position of the task."""
    events: list[JobEvent]
    """Of stages, and notes."""


def read(session: Session, job: Job, *, after: int = 0) -> Convergence:
    """Of the records ``after`` one; the whole one where those change what was before them."""
    tasks = tuning_tasks.of_job(session, job.id)
    positions = {digest_of(task.extracted.workload_key): task.extracted.position for task in tasks}
    told = events.of_kinds(session, job.id, [EventKind.STAGE, EventKind.NOTE], _MOST_EVENTS)
    baseline = stages.outcome(session, job.id, Stage.BASELINE) or {}
    seconds = baseline.get("seconds", {})
    firsts = trials.first_ever(session, positions, job.placement) if job.placement else {}
    defaults = convergence.defaults(firsts) if job.request.precision is Precision.F32 else {}
    if any(first.record_id > after for first in firsts.values()):
        after = 0  # what a default takes changes the curve from its beginning
    search = Search(
        tasks,
        untuned=seconds.get("untuned"),
        known=_known(session, job, positions),
        defaults=defaults,
        began_at=_began(told),
    )
    if after:
        search.resume(trials.standings(session, job.id, up_to=after))
    return Convergence(
        curve=search.follow(trials.of_job(session, job.id, after=after), from_start=not after),
        after=after,
        tasks=tasks,
        untuned=seconds.get("untuned"),
        reference=seconds.get("reference"),
        defaults={positions[digest]: latency for digest, latency in defaults.items()},
        events=told,
    )


def as_json(found: Convergence) -> dict[str, Any]:
    """For plots; what follows some record leaves out what does not change."""
    curve = found.curve
    told: dict[str, Any] = {
        "from": found.after,
        "after": max(found.after, curve.after),
        "trials": curve.trials,
        "estimate": curve.estimate,
        "tasks": {str(position): points for position, points in curve.tasks.items()},
    }
    if not found.after:
        names = {str(task.extracted.position): task.extracted.description for task in found.tasks}
        told |= {"untuned": found.untuned, "reference": found.reference, "names": names}
    return told


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
