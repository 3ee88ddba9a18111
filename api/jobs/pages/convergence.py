"""Data of the convergence plots of a job."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from domain.jobs import EventKind, Job, JobEvent, Stage
from storage import convergence, events
from storage.convergence import Curve, Estimator, Point, thinned

_MOST_EVENTS = 1000


@dataclass(frozen=True, kw_only=True)
class Convergence:
    curve: Curve
    estimator: Estimator
    """State after the last trial of the curve."""
    best_so_far: float | None
    """Seconds of one run with the best schedules so far; None if unknown."""
    events: list[JobEvent]
    """Stage events and notes."""
    last_event: int
    """Id of the last event that the curve includes."""


def read(session: Session, job: Job) -> Convergence:
    last_event = events.newest(session, job.id)
    stage_events = events.of_kinds(session, job.id, [EventKind.STAGE, EventKind.NOTE], _MOST_EVENTS)
    estimator = convergence.begin(session, job, began_at=_began(stage_events))
    curve = estimator.follow(convergence.trials_of_job(session, job.id))
    return Convergence(
        curve=curve,
        estimator=estimator,
        best_so_far=convergence.best_so_far(session, job, estimator),
        last_event=last_event,
        events=stage_events,
    )


def as_json(found: Convergence) -> dict[str, Any]:
    """Return the data of the plots. ``progress`` events extend the lines as long as their basis is the same."""
    curve, estimator = found.curve, found.estimator
    return {
        "basis": estimator.basis,
        "trials": curve.trials,
        "began_at": estimator.began_at.isoformat() if estimator.began_at else None,
        "estimate": curve.estimate,
        "tasks": {str(position): points for position, points in curve.tasks.items()},
        "names": {str(task.extracted.position): task.extracted.description for task in estimator.tasks},
        **asdict(estimator.level),
    }


def _began(stage_events: Sequence[JobEvent]) -> datetime | None:
    """Return when the tune stage first started."""
    starts = (
        event for event in stage_events if event.data.get("stage") == Stage.TUNE and event.data["status"] == "started"
    )
    first = next(starts, None)
    return first.at if first else None


WIDTH, HEIGHT = 1000, 240
_TABLE_ROWS = 9


@dataclass(frozen=True)
class Plot:
    points: Sequence[Point]
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured seconds of one run by name, drawn as points at the end, or where they are from before it."""
    is_final: bool = True

    @property
    def line(self) -> str:
        """Return ``<polyline points>`` of a step line in a box of WIDTH by HEIGHT; empty with fewer than two points."""
        if len(self.points) < 2:
            return ""
        last, bounds = max(point[0] for point in self.points) or 1, self._bounds()
        placed = [(WIDTH * point[0] / last, _height(point[2], *bounds)) for point in self.points]
        steps = [f"{placed[0][0]:.1f},{placed[0][1]:.1f}"]
        for (_, before), (x, y) in itertools.pairwise(placed):
            steps += [f"{x:.1f},{before:.1f}", f"{x:.1f},{y:.1f}"]
        return " ".join(steps)

    @property
    def marks(self) -> list[tuple[str, float, float]]:
        """Return the name and place of each measured time, in the same box."""
        x, bounds = float(WIDTH) if self.is_final else 0.0, self._bounds()
        return [(name, x, round(_height(seconds, *bounds), 1)) for name, seconds in self.measured.items()]

    def _bounds(self) -> tuple[float, float]:
        values = [*(point[2] for point in self.points), *self.measured.values()]
        return min(values), max(values)

    @property
    def rows(self) -> list[Point]:
        return thinned(list(self.points), _TABLE_ROWS)


def _height(seconds: float, low: float, high: float) -> float:
    return HEIGHT * (1 - (seconds - low) / ((high - low) or 1.0))
