"""Which of the living workers would take a job, and what it would compile for and measure on there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from domain import dispatch
from domain.jobs import Job, JobRequest, JobState, RunnerKind
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
    fitting = [
        worker for worker in living if (_gpus(request, worker) if _needs_gpu(request) else not worker.accelerators)
    ]
    if not fitting:
        return None
    worker = max(fitting, key=lambda one: len({toolchain.engine for toolchain in one.toolchains}))
    device = _device(request, worker)
    text = worker.native_target.text if request.target == NATIVE else request.target
    return Place(
        worker=worker,
        target=Target(text=text, threads=device.threads),
        device=device,
        toolchains={toolchain.engine: toolchain for toolchain in worker.toolchains},
    )


def missing(request: JobRequest, living: Sequence[Worker]) -> str | None:
    """What the job needs and no living worker has, as a sentence's end; None when one would take it."""
    if find(request, living) is not None:
        return None
    if not living:
        return "a worker: none is alive"
    if not _needs_gpu(request):
        return "a worker for CPUs: those that are alive have GPUs, and take CUDA jobs only"
    gpus = sorted({gpu.name for worker in living for gpu in worker.accelerators})
    return f"a worker with a GPU for {request.target!r}: those alive have {', '.join(gpus) or 'none'}"


def waits_for(job: Job, living: Sequence[Worker], held: Collection[str]) -> str | None:
    """What a queued job waits for but its turn, as a sentence's end; ``held``: ids of those that their quota holds."""
    if job.state is not JobState.QUEUED:
        return None
    if job.id in held:
        return "an end of another job: as many as its token may run do so"
    return missing(job.request, living)


def _needs_gpu(request: JobRequest) -> bool:
    return dispatch.queue_of(request) == dispatch.CUDA_QUEUE


def _device(request: JobRequest, worker: Worker) -> Device:
    threads = request.threads or worker.device.threads
    if request.rpc is not None:
        return Device.behind_tracker(request.rpc.tracker, request.rpc.key, threads)
    if request.device is not None:
        return Device.recorded(request.device, threads)
    if request.runner is RunnerKind.NONE and request.target != NATIVE:
        return Device.none(threads)
    gpus = _gpus(request, worker)
    if gpus:
        return gpus[0].with_threads(threads)
    return worker.device.with_threads(threads)


def _gpus(request: JobRequest, worker: Worker) -> list[Device]:
    """Those that run what is compiled for the target: keys end in the compute capability, where it is known."""
    wanted = request.target.rpartition("-arch=")[2].rstrip("a")
    return [gpu for gpu in worker.accelerators if gpu.key.endswith((f"/{wanted}", "/unknown"))]
