"""The Celery application. Its only task makes a worker look for jobs."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

from celery import Celery
from celery.signals import worker_shutting_down
from kombu import Exchange, Queue

from domain import dispatch
from domain.workers import Worker
from worker.runtime import Runtime

_SAME_REQUEST_SECONDS = 2.0
"""A service manager signals every process, and the supervisor its children: both signals count as one request."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)


def create(broker_url: str, runtime: Runtime) -> Celery:
    app = Celery("tunesmith", broker=broker_url)
    app.conf.update(
        broker_use_ssl=dispatch.tls_options(broker_url),
        broker_connection_retry_on_startup=True,
        # For ever: a worker without a broker still finds jobs in the database.
        broker_connection_max_retries=None,
        broker_transport_options=dispatch.transport_options(runtime.settings.broker_visibility_seconds),
        task_queues=[Queue(dispatch.QUEUE, Exchange(dispatch.QUEUE), routing_key=dispatch.QUEUE)],
        task_default_queue=dispatch.QUEUE,
        task_ignore_result=True,
        # Acknowledged early: the jobs are in the database.
        task_acks_late=False,
        # One message at a time, counted by what is at work. Not by what was acknowledged, as kombu counts (0 turns that
        # off): an acknowledgement that is lost with a frozen broker would make the worker deaf.
        worker_prefetch_multiplier=0,
        worker_disable_prefetch=True,
        worker_pool="threads",
        worker_concurrency=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
    )

    @app.task(name=dispatch.BELL)
    def look() -> None:
        runtime.look()

    worker_shutting_down.connect(lambda **_: _stop(runtime), weak=False)
    runtime.call_help = _Caller(app).call
    return app


def run(app: Celery, runtime: Runtime) -> None:
    """Run a Celery worker until a signal ends it and its running job is released."""
    level = f"--loglevel={runtime.settings.log_level.value.upper()}"
    arguments = ["--quiet", "worker", level, "--without-gossip", "--without-mingle", "--without-heartbeat"]

    def leave(*_: object) -> None:
        _stop(runtime)
        raise SystemExit(0)

    # Until Celery installs its own handlers: a job may be running by then.
    for number in _SIGNALS:
        signal.signal(number, leave)
    try:
        app.worker_main([*arguments, f"--hostname=worker-{os.getpid()}@%h"])
    finally:
        runtime.shutdown.set()
        runtime.wait_until_idle()


def _stop(runtime: Runtime) -> None:
    runtime.shutdown.set()
    # Celery would take a second SIGTERM as it took the first.
    end = _end_when_told_again()
    for number in _SIGNALS:
        signal.signal(number, end)


def _end_when_told_again() -> Callable[..., None]:
    """End at once on a second signal: engines end with this process, and the job's lease expires."""
    first = time.monotonic()

    def end(*_: object) -> None:
        if time.monotonic() - first > _SAME_REQUEST_SECONDS:
            os.kill(os.getpid(), signal.SIGKILL)

    return end


class _Caller:
    """Call for helpers in a thread, so that a broker that does not respond delays no search."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._calling = threading.Lock()

    def call(self, job_id: str, idle: Sequence[Worker]) -> None:
        if self._calling.acquire(blocking=False):
            threading.Thread(target=self._ring, args=[job_id, len(idle)], name="call for help", daemon=True).start()

    def _ring(self, job_id: str, times: int) -> None:
        try:
            dispatch.ring(self._app, times=times)
        except Exception:  # noqa: BLE001 - whatever the broker's client raises: the search goes on without help
            _log.warning("job %s: could not ask other workers for help", job_id, exc_info=True)
        finally:
            self._calling.release()
