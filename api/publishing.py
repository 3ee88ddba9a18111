"""The port behind which workers are told of jobs, and its implementation over Celery."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from celery import Celery
from kombu.exceptions import OperationalError

from domain import dispatch, errors
from domain.jobs import Job
from domain.workers import Worker

_PATIENCE: dict[str, Any] = {
    "socket_connect_timeout": 2,
    "socket_timeout": 2,
}
_AWAY_SECONDS = 3.0
"""After a broker did not answer, nobody waits for it: the reaper sends what it is not asked to take."""

_EXPIRES_SECONDS = 24 * 3600.0
"""After which a message that nobody read is void. Workers have sent many others by then; it is longer than hosts'
clocks differ, by which it is judged."""


class Publisher(Protocol):
    """Both methods raise BrokerUnavailable. A lost message costs time, never a job: the reaper sends another."""

    def publish(self, job: Job, living: Sequence[Worker] = ()) -> None:
        """Tell the workers that can serve the job to look at it; ``living``: those that there are."""
        ...

    def check(self) -> None:
        """Whether messages could be sent now."""
        ...


class CeleryPublisher:
    def __init__(self, broker_url: str) -> None:
        self._app = Celery("tunesmith.api", broker=broker_url)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_timeout=2,
            broker_transport_options={**dispatch.transport_options(), **_PATIENCE},
            task_default_queue=dispatch.QUEUE,
            broker_connection_retry=False,
        )
        self._away_until = 0.0

    def publish(self, job: Job, living: Sequence[Worker] = ()) -> None:
        if time.monotonic() < self._away_until:
            raise errors.BrokerUnavailable("the broker did not answer a moment ago")
        try:
            self._app.send_task(**dispatch.message(job, living), retry=False, expires=_EXPIRES_SECONDS)
        except (OperationalError, OSError) as error:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            raise errors.BrokerUnavailable(f"the broker did not take the message: {error}") from error

    def check(self) -> None:
        try:
            with self._app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=2)
        except (OperationalError, OSError) as error:
            raise errors.BrokerUnavailable(f"the broker does not answer: {error}") from error

    def close(self) -> None:
        self._app.close()
