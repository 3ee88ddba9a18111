"""Requirements of a job, and which of them a worker lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from domain import errors
from domain.jobs import JobRequest, RunnerKind
from domain.targets import kind_of
from domain.workers import Worker

_CUDA_ENGINE = "relax"


def checked_trackers(text: str) -> str:
    """Return ``text``. Raises ValueError unless it is a comma-separated list of ``HOST:PORT``."""
    for tracker in trackers_of(text) or ():
        host, _, port = tracker.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{tracker!r} is not HOST:PORT")
    return text


def trackers_of(text: str) -> tuple[str, ...] | None:
    """Return the trackers of the setting; None if it is empty, which allows any tracker."""
    return tuple(name for part in text.split(",") if (name := part.strip())) or None


def measures_on_gpu(request: JobRequest) -> bool:
    return kind_of(request.target) == "cuda" and request.runner is RunnerKind.LOCAL


def engines_for(request: JobRequest) -> tuple[str, ...]:
    """Return the engines that can serve the request, preferred one first."""
    names = dict.fromkeys(tuner.engine for tuner in request.tuners)
    if kind_of(request.target) == "cuda":
        return tuple(name for name in names if name == _CUDA_ENGINE)
    return tuple(names)


def lacking(request: JobRequest, worker: Worker) -> str | None:
    """Return the requirement that the worker does not meet, as in the details of ``missing``; None if it meets all."""
    return next((name for name, (meets, _) in _NEEDS.items() if not meets(request, worker)), None)


def serving(request: JobRequest, workers: Sequence[Worker]) -> list[Worker]:
    return [worker for worker in workers if lacking(request, worker) is None]


def missing(request: JobRequest, workers: Sequence[Worker]) -> errors.NoWorker | None:
    """Return what the job needs and no worker has; None if one can run it."""
    if not workers:
        return _no_worker("worker", "a worker; no worker is alive")
    left = list(workers)
    for name, (meets, explain) in _NEEDS.items():
        meeting = [worker for worker in left if meets(request, worker)]
        if not meeting:
            return _no_worker(name, explain(request, left))
        left = meeting
    return None


def _no_worker(name: str, needed: str) -> errors.NoWorker:
    return errors.NoWorker(needed, hint=_HINTS.get(name), details={"missing": name})


def _has_device(request: JobRequest, worker: Worker) -> bool:
    """A worker with a GPU measures only on that, to be available for jobs that need one."""
    return bool(worker.host.gpus_for(request.target)) if measures_on_gpu(request) else not worker.accelerators


def _has_engine(request: JobRequest, worker: Worker) -> bool:
    return not set(engines_for(request)).isdisjoint(toolchain.engine for toolchain in worker.toolchains)


def _is_machine(request: JobRequest, worker: Worker) -> bool:
    return not _runs_on_cpu(request) or worker.host.is_machine(request.target)


def _runs_cpu(request: JobRequest, worker: Worker) -> bool:
    return not _runs_on_cpu(request) or worker.host.runs_cpu(request.target)


def _reaches_tracker(request: JobRequest, worker: Worker) -> bool:
    if request.runner is not RunnerKind.RPC or request.rpc is None or worker.trackers is None:
        return True
    return request.rpc.tracker in worker.trackers


def _runs_on_cpu(request: JobRequest) -> bool:
    """Return whether the code runs on the worker's own CPU."""
    return request.runner is RunnerKind.LOCAL and kind_of(request.target) == "llvm"


_HINTS = {
    "engine": "The job is kept. An admin installs it on a worker's host, tunesmith engines install NAME, and starts "
    "the worker again: one that runs does not look for new engines."
}
"""Of needs that a worker here could come to meet."""


def _no_device(request: JobRequest, workers: Sequence[Worker]) -> str:
    if not measures_on_gpu(request):
        return "a CPU worker; the live workers have GPUs and accept only CUDA jobs"
    gpus = sorted({gpu.name for worker in workers for gpu in worker.accelerators})
    return f"a worker with a GPU for {request.target!r}: the live workers have {', '.join(gpus) or 'none'}"


def _no_machine(request: JobRequest, workers: Sequence[Worker]) -> str:
    machines = sorted({worker.host.machine for worker in workers})
    return f"a worker that runs code for {request.target!r}: the live workers are {', '.join(machines)}"


def _no_cpu(request: JobRequest, workers: Sequence[Worker]) -> str:
    natives = sorted({worker.native_target.text for worker in workers})
    return f"a worker whose CPU runs code for {request.target!r}: the live workers have {', '.join(natives)}"


def _no_engine(request: JobRequest, workers: Sequence[Worker]) -> str:
    wanted = " or ".join(engines_for(request))
    names = sorted({toolchain.engine for worker in workers for toolchain in worker.toolchains})
    return f"a worker with the {wanted} engine: workers for this target have {', '.join(names) or 'none'}"


def _no_tracker(request: JobRequest, workers: Sequence[Worker]) -> str:
    wanted = request.rpc.tracker if request.rpc else ""
    reached = sorted({tracker for worker in workers for tracker in worker.trackers or ()})
    return f"a worker that may use the tracker {wanted}: the live workers may use {', '.join(reached)}"


_NEEDS: dict[str, tuple[Callable[[JobRequest, Worker], bool], Callable[[JobRequest, Sequence[Worker]], str]]] = {
    "device": (_has_device, _no_device),
    "machine": (_is_machine, _no_machine),
    "cpu": (_runs_cpu, _no_cpu),
    "engine": (_has_engine, _no_engine),
    "tracker": (_reaches_tracker, _no_tracker),
}
"""Whether a worker meets each need, and what is missing if none does."""
