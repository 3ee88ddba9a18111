"""The message by which workers are told of a job: name, queues and priorities, as both ends must have them."""

from __future__ import annotations

from typing import Any

from domain.jobs import Job, JobRequest, RunnerKind
from domain.targets import kind_of

RUN_JOB = "tunesmith.run_job"
"""Name of the Celery task; its one argument is a job id."""

QUEUE = "tunesmith"
CUDA_QUEUE = "tunesmith.cuda"
"""Read by workers with a GPU alone, which read no other."""
PRIORITIES = 10
"""0 goes first, as Redis's transport has it."""

VISIBILITY_SECONDS = 12 * 3600


def queue_of(request: JobRequest) -> str:
    """Where the job waits for a worker that can measure it."""
    needs_gpu = kind_of(request.target) == "cuda" and request.runner is RunnerKind.LOCAL
    return CUDA_QUEUE if needs_gpu else QUEUE


def message(job: Job) -> dict[str, Any]:
    """What ``Celery.send_task`` takes to tell workers of the job."""
    return {
        "name": RUN_JOB,
        "args": [job.id],
        "priority": job.request.priority,
        "queue": queue_of(job.request),
    }


def transport_options() -> dict[str, Any]:
    """Options of kombu's Redis transport that decide in which list a message lies: the same for both ends."""
    return {
        "priority_steps": list(range(PRIORITIES)),
        "queue_order_strategy": "priority",
        "visibility_timeout": VISIBILITY_SECONDS,
    }
