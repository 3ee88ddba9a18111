"""Progress bars of running jobs, from their latest events of progress, or of stages with several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from domain import progress
from domain.jobs import EventKind, Job, JobEvent, JobState, Stage
from storage import events


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    share: float
    """Finished share of the job, 0 to 1."""
    seconds_left: float | None
    """Of tuning; None in other stages, and if unknown."""


def of_jobs(session: Session, jobs: Sequence[Job]) -> dict[str, JobProgress]:
    """Return the progress of those of the jobs that are running, by id."""
    running = [job for job in jobs if job.state is not JobState.QUEUED and not job.state.is_final]
    tuning = [job.id for job in running if job.stage is Stage.TUNE]
    latest = events.latest_of_each(session, tuning, EventKind.PROGRESS)
    # A job of several sizes has no trials of its own.
    several = [job.id for job in running if job.request.sizes]
    latest |= events.latest_of_each(session, several, EventKind.STAGE) if several else {}
    return {job.id: _progress(job, latest.get(job.id)) for job in running}


def _progress(job: Job, latest: JobEvent | None) -> JobProgress:
    reached = progress.share(job.request.budget, job.stage)
    if latest is None:
        return JobProgress(share=reached, seconds_left=None)
    return JobProgress(share=max(reached, latest.data.get("share", 0.0)), seconds_left=latest.data.get("seconds_left"))
