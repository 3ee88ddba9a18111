"""The port through which the API wakes workers for new jobs, and its implementation with Celery."""

from __future__ import annotations

import time
from typing import Any, Protocol

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from domain import dispatch, errors

_PATIENCE: dict[str, Any] = {
    "socket_connect_timeout": 2,
    "socket_timeout": 2,
}
_AWAY_SECONDS = 3.0
"""After a broker failed to answer, skip it for this time; idle workers poll for jobs."""


class Publisher(Protocol):
    """Both methods raise BrokerUnavailable. A lost message costs seconds, as idle workers poll for jobs."""

    def ring(self) -> None:
        """Wake an idle worker to look for jobs."""
        ...

    def check(self) -> None:
        """Check whether messages can be sent."""
        ...


class CeleryPublisher:
    def __init__(self, broker_url: str) -> None:
        self._app = Celery("tunesmith.api", broker=broker_url)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_timeout=2,
            broker_use_ssl=dispatch.tls_options(broker_url),
            broker_transport_options={**dispatch.transport_options(), **_PATIENCE},
            task_default_queue=dispatch.QUEUE,
            broker_connection_retry=False,
        )
        self._away_until = 0.0

    def ring(self) -> None:
        if time.monotonic() < self._away_until:
            raise errors.BrokerUnavailable("the broker did not respond to an earlier request")
        try:
            dispatch.ring(self._app)
        except (OperationalError, OSError, RedisError) as error:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            raise errors.BrokerUnavailable(f"the broker did not accept the message: {error}") from error

    def check(self) -> None:
        try:
            with self._app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=2)
        except (OperationalError, OSError) as error:
            raise errors.BrokerUnavailable(f"the broker does not respond: {error}") from error

    def close(self) -> None:
        self._app.close()
