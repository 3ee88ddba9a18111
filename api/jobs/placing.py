"""Which of the living workers would take a job, and what it would compile for and measure on there."""

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
    """By engine."""


def find(request: JobRequest, living: Sequence[Worker]) -> Place | None:
    """The place at the worker that runs most engines; of equals the one that serves longest."""
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
    """What a queued job waits for but its turn, as a sentence's end; ``held``: ids of those that their quota holds."""
    if job.state is not JobState.QUEUED:
        return None
    if job.id in held:
        return "another job to finish (the token's running-job limit)"
    return lacked(job.request, living)


def lacked(request: JobRequest, living: Sequence[Worker]) -> str | None:
    """What the job needs and no living worker has, as a sentence's end; None when one would take it."""
    lack = capabilities.missing(request, living)
    return lack.message if lack else None


def warnings(job: Job, living: Sequence[Worker]) -> list[errors.TunesmithError]:
    """What whoever asks for the job should know at once; nothing of it is a reason to refuse."""
    lack = capabilities.missing(job.request, living) if job.state is JobState.QUEUED else None
    return [lack] if lack else []
