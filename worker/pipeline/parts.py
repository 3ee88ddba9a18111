"""The parts of a job with several sizes: jobs of their own, one a size, which the job's worker runs in turn."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from domain import errors
from domain.jobs import EventKind, Job, JobState, Stage
from storage import events, jobs
from worker import clock
from worker.leases import CancelAsked
from worker.pipeline.context import JobContext

RunPart = Callable[[str, float | None], bool]
"""Run the job of that id to its end or release it, within these seconds if they are limited; False if another worker
may still hold it."""
_MIRROR_SECONDS = 2.0
_log = logging.getLogger(__name__)


def enter(context: JobContext, stage: Stage) -> None:
    """Begin a stage of the whole job. Raises TimeLimit, but not once all sizes are verified: these are published late
    rather than lost."""
    if all(part.state is JobState.SUCCEEDED for part in of_job(context)):
        context.limit.seconds = None
    context.limit.enter(stage, context.results)


def run(context: JobContext, run_part: RunPart) -> list[Job]:
    """Run the parts that have not ended and return all. Raises SizeFailed, TimeLimit, and what ends this attempt."""
    # A part has engines of its own.
    context.engines.close_all()
    sizes = context.request.sizes
    done, ended = 0.0, []
    for number, (part, size) in enumerate(zip(of_job(context), sizes, strict=True), 1):
        label = f"size {number} of {len(sizes)} ({size.name})"
        share = size.share / sum(each.share for each in sizes[number - 1 :])
        with _Mirror(context, part.id, label=label, before=done, share=size.share):
            ended.append(_ended(context, part.id, run_part, share))
        _require_success(ended[-1], size.name)
        _require_same_place(context, ended[-1], size.name)
        done += size.share
    return ended


def of_job(context: JobContext) -> list[Job]:
    """The parts, in the order of the request's sizes."""
    with context.database.reading() as session:
        return jobs.parts(session, context.job.id)


def _ended(context: JobContext, part_id: str, run_part: RunPart, share: float) -> Job:
    """Run the part until it has ended, each time within that share of the time that the whole job has left."""
    while True:
        context.heartbeat.check()
        with context.database.reading() as session:
            part = jobs.get(session, part_id)
        if part.state.is_final:
            return part
        if context.limit.is_reached:
            raise context.limit.error("not all sizes could be tuned")
        left = context.limit.left
        if not run_part(part_id, None if left is None else left * share):
            time.sleep(context.settings.cancel_poll_seconds)


def _require_success(part: Job, name: str) -> None:
    if part.state is JobState.CANCELED:
        # Parts are canceled with the whole job alone.
        raise CancelAsked
    if part.failure is not None:
        found = part.failure
        raise errors.SizeFailed(
            f"{name}: {found.message}", hint=found.hint, details={"job": part.id, "code": found.code, "size": name}
        )


def _require_same_place(context: JobContext, part: Job, name: str) -> None:
    """Raise SizeFailed if the part was tuned for another target or device, as by a worker that was lost since."""
    if part.placement is None:
        return
    found, wanted = (f"{place.target.identity} on {place.device.key}" for place in (part.placement, context.placement))
    if found != wanted:
        raise errors.SizeFailed(
            f"{name} was tuned for {found}, and this worker has {wanted}: sizes of one library need the same",
            hint="Retry the job: then one worker tunes all sizes.",
            details={"job": part.id, "size": name},
        )


class _Mirror:
    """Repeats the progress of a part in the events of the whole job, while the context is open."""

    def __init__(self, context: JobContext, part_id: str, *, label: str, before: float, share: float) -> None:
        """``before``: share of the job that was done before this part, which is a ``share`` of it."""
        self._context, self._part_id = context, part_id
        self._label, self._before, self._share = label, before, share
        self._told: tuple[str, float] | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=f"mirror {part_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._done.wait(_MIRROR_SECONDS):
            try:
                self._look()
            except SQLAlchemyError:
                _log.warning("job %s: progress was not stored", self._context.job.id, exc_info=True)

    def _look(self) -> None:
        context = self._context
        with context.database.reading() as session:
            part = jobs.get(session, self._part_id)
            seen = events.of_kinds(session, part.id, [EventKind.STAGE, EventKind.PROGRESS], 1)
        within = float(seen[-1].data.get("share") or 0.0) if seen else 0.0
        told = (str(part.stage or part.state), round(self._before + within * self._share, 4))
        if told == self._told or (self._told and told[0] == self._told[0] and told[1] < self._told[1]):
            return
        self._told = told
        data = {
            "stage": Stage.TUNE.value,
            "status": "working",
            "message": f"{self._label}: {told[0]}",
            "share": told[1],
        }
        with context.database.transaction() as session:
            if jobs.holds(session, context.job.id, context.lease):
                events.append(session, context.job.id, EventKind.STAGE, data, now=clock.now())
