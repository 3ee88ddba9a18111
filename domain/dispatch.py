"""The message by which workers are told of a job: name, queues and priorities, as both ends must have them.

A queue is for one kind of device and what of the engines a job needs. Where only some of the workers that read it could
serve the job (another machine, CPU, GPU or tracker), the message goes to the queue of workers that are alike instead.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from domain import capabilities
from domain.jobs import Job, JobRequest, Tuner
from domain.workers import Worker

RUN_JOB = "tunesmith.run_job"
"""Name of the Celery task; its one argument is a job id."""

HELP_JOB = "tunesmith.help_job"
"""Name of the Celery task by which idle workers are asked to help with a job; its one argument is the job's id."""

QUEUE = "tunesmith"
"""Of jobs that any engine serves; those that one engine must serve have queues with its name behind a dot."""
CUDA_QUEUE = "tunesmith.cuda"
"""Read by workers with a GPU alone, which read no other of these."""
PRIORITIES = 10
"""0 goes first, as Redis's transport has it."""

VISIBILITY_SECONDS = 12 * 3600.0
"""After which a message that was taken, and whose taker never said that it has it, is given to another."""
_ANSWER_SECONDS = 5
"""A broker that takes longer is away: one that is frozen, or behind a cut cable, closes no connection."""


def queue_of(request: JobRequest, living: Sequence[Worker] = ()) -> str:
    """Where the job waits for a worker that can serve it; ``living``: those that there are now."""
    shared = _shared_queue(request)
    readers = [worker for worker in living if shared in queues_of(worker)]
    able = capabilities.serving(request, readers)
    if len(able) in (0, len(readers)):
        return shared
    idle = [worker for worker in able if worker.current_job is None]
    return own_queue(random.choice(idle or able))  # noqa: S311 - any of them will do


def queues_of(worker: Worker) -> list[str]:
    """What the worker reads: whatever it is sent there, it looks once more whether it can serve the job."""
    names = {toolchain.engine for toolchain in worker.toolchains}
    served = [name for name in _ENGINES if name in names]
    if worker.accelerators:
        return [CUDA_QUEUE, own_queue(worker)]
    return [*([QUEUE] if served else []), *(f"{QUEUE}.{name}" for name in served), own_queue(worker)]


def own_queue(worker: Worker) -> str:
    """The queue of all workers that can serve what this one can."""
    facts = [
        worker.device.key,
        sorted(gpu.key for gpu in worker.accelerators),
        sorted({toolchain.engine for toolchain in worker.toolchains}),
        sorted(worker.foreign_cpus),
        None if worker.trackers is None else sorted(worker.trackers),
    ]
    return f"{QUEUE}.like.{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


def message(job: Job, living: Sequence[Worker] = ()) -> dict[str, Any]:
    """What ``Celery.send_task`` takes to tell workers of the job."""
    return {
        "name": RUN_JOB,
        "args": [job.id],
        "priority": job.request.priority,
        "queue": queue_of(job.request, living),
    }


def help_message(job_id: str, worker: Worker) -> dict[str, Any]:
    """What ``Celery.send_task`` takes to ask the worker, or one that is like it, for help; jobs that wait go first."""
    return {"name": HELP_JOB, "args": [job_id], "priority": PRIORITIES - 1, "queue": own_queue(worker)}


def transport_options(visibility_seconds: float = VISIBILITY_SECONDS) -> dict[str, Any]:
    """Options of kombu's Redis transport, the same for both ends: in which list a message lies, and how long to wait
    for a broker."""
    return {
        "priority_steps": list(range(PRIORITIES)),
        # Of all queues the most urgent message goes first; of those that are as urgent, one of each queue in turn.
        "queue_order_strategy": "round_robin",
        "visibility_timeout": visibility_seconds,
        "socket_connect_timeout": _ANSWER_SECONDS,
        "socket_timeout": _ANSWER_SECONDS,
        "socket_keepalive": True,
        "health_check_interval": 2 * _ANSWER_SECONDS,
        # Whoever sends learns of it; the reaper sends again.
        "retry_on_timeout": False,
    }


_ENGINES = tuple(dict.fromkeys(tuner.engine for tuner in Tuner.AUTO.considered))


def _shared_queue(request: JobRequest) -> str:
    if capabilities.measures_on_gpu(request):
        return CUDA_QUEUE
    names = capabilities.engines_for(request)
    return f"{QUEUE}.{names[0]}" if len(names) == 1 else QUEUE
