"""Which of the living workers would take a job, and what it would compile for and measure on there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain import targets
from domain.jobs import JobRequest
from domain.targets import NATIVE, Device, Target, Toolchain
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
    wants_gpu = targets.kind_of(request.target) == "cuda"
    fitting = [worker for worker in living if bool(worker.accelerators) == wants_gpu]
    if not fitting:
        return None
    worker = max(fitting, key=lambda one: len({toolchain.engine for toolchain in one.toolchains}))
    threads = request.threads or worker.device.threads
    text = worker.native_target.text if request.target == NATIVE else request.target
    device = worker.accelerators[0] if wants_gpu else worker.device.with_threads(threads)
    return Place(
        worker=worker,
        target=Target(text=text, threads=threads),
        device=device,
        toolchains={toolchain.engine: toolchain for toolchain in worker.toolchains},
    )
