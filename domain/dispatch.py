"""The message that wakes workers, for both API and workers.

The message names no job. A worker that receives it claims the next job in the database. Idle workers also poll every
few seconds, so a lost message costs seconds.
"""

from __future__ import annotations

import ssl
from typing import Any

BELL = "tunesmith.look"
"""Name of the Celery task, which has no arguments."""

QUEUE = "tunesmith"
"""Name of the only queue, which every worker reads."""

VISIBILITY_SECONDS = 12 * 3600.0
"""Redelivery delay for unacknowledged messages."""
_ANSWER_SECONDS = 5
"""Timeout of the broker: a frozen or disconnected one does not close connections."""
_MOST_UNHEARD = 16
"""Maximum number of queued messages. Idle workers take theirs at once, so queued ones are for workers that
become idle."""


def ring(app: Any, *, times: int = 1) -> None:
    """Wake idle workers through the Celery application, unless enough messages are queued.

    So the queue is bounded even if no worker reads it. Raises errors of the broker's client.
    """
    with app.producer_or_acquire() as producer:
        unheard = producer.channel.queue_declare(QUEUE).message_count
        for _ in range(min(times, _MOST_UNHEARD - unheard)):
            app.send_task(BELL, queue=QUEUE, producer=producer, retry=False)


def tls_options(url: str) -> dict[str, Any] | bool:
    """Return Celery's ``broker_use_ssl``: certificates of rediss:// brokers are verified, which kombu by default does
    not do. Options in the URL, such as ``ssl_ca_certs``, take precedence."""
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss:") else False


def transport_options(visibility_seconds: float = VISIBILITY_SECONDS) -> dict[str, Any]:
    """Return options of kombu's Redis transport: timeouts, alike for API and workers."""
    return {
        "visibility_timeout": visibility_seconds,
        "socket_connect_timeout": _ANSWER_SECONDS,
        "socket_timeout": _ANSWER_SECONDS,
        "socket_keepalive": True,
        "health_check_interval": 2 * _ANSWER_SECONDS,
        # A lost message is harmless, as workers poll.
        "retry_on_timeout": False,
    }
