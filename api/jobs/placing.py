"""Selection of a live worker for a job, with its target and device."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from domain import capabilities, errors, placing
from domain.jobs import Job, JobRequest, JobState
from domain.targets import Device, Target, Toolchain
from domain.workers import Worker


@dataclass(frozen=True, kw_only=True)
class Place:
    worker: Worker
    target: Target
    device: Device
    toolchains: dict[str, Toolchain]
    """Toolchains by engine."""


def find(request: JobRequest, living: Sequence[Worker]) -> Place | None:
    """Return the placement on the worker with most engines; among equals, the longest-running one."""
    fitting = capabilities.serving(request, living)
    if not fitting:
        return None
    worker = max(fitting, key=lambda one: len({toolchain.engine for toolchain in one.toolchains}))
    target, device = placing.resolve(request, worker.host)
    return Place(
        worker=worker,
        target=target,
        device=device,
        toolchains={toolchain.engine: toolchain for toolchain in worker.toolchains},
    )


def waits_for(job: Job, living: Sequence[Worker], held: Collection[str]) -> str | None:
    """Return what a queued job waits for besides its turn, as the end of a sentence; ``held``: jobs held by a quota."""
    if job.state is not JobState.QUEUED:
        return None
    if job.id in held:
        return "another job to finish (the token's running-job limit)"
    return lacked(job.request, living)


def lacked(request: JobRequest, living: Sequence[Worker]) -> str | None:
    """Return what the job needs and no live worker has, as the end of a sentence; None if a worker can run it."""
    lack = capabilities.missing(request, living)
    return lack.message if lack else None


def warnings(job: Job, living: Sequence[Worker]) -> list[errors.TunesmithError]:
    """Return warnings for the creator of a job, none of which is a reason to reject it."""
    lack = capabilities.missing(job.request, living) if job.state is JobState.QUEUED else None
    return [lack] if lack else []
