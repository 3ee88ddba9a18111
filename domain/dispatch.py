"""The message by which workers are told of a job: name, queue and priorities, as both ends must have them."""

from __future__ import annotations

from typing import Any

RUN_JOB = "tunesmith.run_job"
"""Name of the Celery task; its one argument is a job id."""

QUEUE = "tunesmith"
PRIORITIES = 10
"""0 goes first, as Redis's transport has it."""

VISIBILITY_SECONDS = 12 * 3600


def transport_options() -> dict[str, Any]:
    """Options of kombu's Redis transport that decide in which list a message lies: the same for both ends."""
    return {
        "priority_steps": list(range(PRIORITIES)),
        "queue_order_strategy": "priority",
        "visibility_timeout": VISIBILITY_SECONDS,
    }
