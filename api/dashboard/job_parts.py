"""What a job's page tells of its stages, reckoned from the job's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from api import schemas
from domain.events import EventKind, JobEvent
from domain.jobs import JobState, Stage

Progress = Literal["done", "now", "ended", "ahead"]
"""``ended``: where a job that failed or was canceled came to its end."""


@dataclass(frozen=True, kw_only=True)
class StageLine:
    stage: Stage
    progress: Progress
    seconds: float | None
    """Of a finished stage; None of one at work or ahead."""
    began_at: datetime | None
    share: float
    """Of the time of all finished stages."""


def stage_lines(job: schemas.JobDetail, events: Sequence[JobEvent]) -> list[StageLine]:
    """One for every stage, in order; ``events`` tell when the one at work began."""
    finished = {time.stage: time for time in job.timeline}
    total = sum(time.seconds for time in job.timeline) or 1.0
    began = {
        event.data["stage"]: event.at
        for event in events
        if event.kind is EventKind.STAGE and event.data.get("status") == "started"
    }
    return [
        StageLine(
            stage=stage,
            progress=_progress(job, stage, stage in finished),
            seconds=finished[stage].seconds if stage in finished else None,
            began_at=finished[stage].started_at if stage in finished else began.get(stage.value),
            share=finished[stage].seconds / total if stage in finished else 0.0,
        )
        for stage in Stage
    ]


def _progress(job: schemas.JobDetail, stage: Stage, is_finished: bool) -> Progress:
    order = list(Stage)
    if is_finished or (job.stage and order.index(stage) < order.index(job.stage)):
        return "done"
    if job.stage is not stage or job.state is JobState.QUEUED:
        return "ahead"
    return "ended" if job.state.is_final else "now"
