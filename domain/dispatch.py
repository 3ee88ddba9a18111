"""The message by which workers are told that there is something to do, as both ends must have it.

A message is a doorbell: it names no job. The worker that hears it claims in the database what is to be done next, and
idle workers look there every few seconds even if they hear nothing, so a bell that is lost costs seconds.
"""

from __future__ import annotations

from typing import Any

BELL = "tunesmith.look"
"""Name of the Celery task, which takes no arguments."""

QUEUE = "tunesmith"
"""Name of the one queue, which every worker reads."""

VISIBILITY_SECONDS = 12 * 3600.0
"""Redelivery delay for unacknowledged messages."""
_ANSWER_SECONDS = 5
"""A broker that takes longer is away: one that is frozen, or behind a cut cable, closes no connection."""
_MOST_UNHEARD = 16
"""Bells in the queue. Idle workers take theirs at once, so those that lie there are for workers that become idle."""


def ring(app: Any, *, times: int = 1) -> None:
    """Wake so many idle workers by the Celery application, unless enough bells lie unheard already.

    So the queue never grows, even if no worker reads it. Raises what the broker's client does.
    """
    with app.producer_or_acquire() as producer:
        unheard = producer.channel.queue_declare(QUEUE).message_count
        for _ in range(min(times, _MOST_UNHEARD - unheard)):
            app.send_task(BELL, queue=QUEUE, producer=producer, retry=False)


def transport_options(visibility_seconds: float = VISIBILITY_SECONDS) -> dict[str, Any]:
    """Options of kombu's Redis transport, the same for both ends: how long to wait for a broker."""
    return {
        "visibility_timeout": visibility_seconds,
        "socket_connect_timeout": _ANSWER_SECONDS,
        "socket_timeout": _ANSWER_SECONDS,
        "socket_keepalive": True,
        "health_check_interval": 2 * _ANSWER_SECONDS,
        # A bell that was not sent is not missed for long: workers look by themselves.
        "retry_on_timeout": False,
    }
