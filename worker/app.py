"""The Celery application: one task says "look at job N", the other "help with job N"."""

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

from domain import dispatch, logs
from domain.jobs import Job
from domain.workers import Worker
from worker import messages
from worker.reaper import Publish
from worker.runtime import Runtime

_HELP_SECONDS = 6.0
"""Calls for help are repeated: one that nobody had time for by then is void."""
_SAME_REQUEST_SECONDS = 2.0
"""A service manager tells every process of the service to end, and the supervisor its children: that is one request."""
_log = logging.getLogger(__name__)


def create(broker_url: str, runtime: Runtime) -> Celery:
    messages.forget_lost_acknowledgements()
    app = Celery("tunesmith", broker=broker_url)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        # However long it is away: a worker without a broker still works on its job.
        broker_connection_max_retries=None,
        broker_transport_options=dispatch.transport_options(runtime.settings.broker_visibility_seconds),
        task_queues=[Queue(name, Exchange(name), routing_key=name) for name in runtime.queues],
        task_default_queue=dispatch.QUEUE,
        task_ignore_result=True,
        # Early: the database knows what is to be done, and the reaper sends a new message when it is not.
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_pool="threads",
        worker_concurrency=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
    )

    @app.task(name=dispatch.RUN_JOB)
    def run_job(job_id: str) -> None:
        with logs.bound(job_id=job_id):
            runtime.run_job(job_id)

    @app.task(name=dispatch.HELP_JOB)
    def help_job(job_id: str) -> None:
        with logs.bound(job_id=job_id):
            runtime.help_job(job_id)
        if runtime.wanted_by is not None:
            # At once: its message may lie in a queue that others read, and the claim decides between those who come.
            run_job(runtime.wanted_by)

    def stop(**_: object) -> None:
        runtime.shutdown.set()
        # Celery would take a second SIGTERM as it took the first.
        end = _end_when_told_again()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)

    worker_shutting_down.connect(stop, weak=False)
    runtime.call_help = _Caller(app).call
    return app


def _end_when_told_again() -> Callable[..., None]:
    """Whoever asks twice waits no longer: engines end with this process, and the job's lease runs out."""
    first = time.monotonic()

    def end(*_: object) -> None:
        if time.monotonic() - first > _SAME_REQUEST_SECONDS:
            os.kill(os.getpid(), signal.SIGKILL)

    return end


class _Caller:
    """Calls for help, from a thread of their own: a broker that does not answer holds up no search."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._calling = threading.Lock()

    def call(self, job_id: str, idle: Sequence[Worker]) -> None:
        if self._calling.acquire(blocking=False):
            threading.Thread(target=self._send, args=[job_id, idle], name="call for help", daemon=True).start()

    def _send(self, job_id: str, idle: Sequence[Worker]) -> None:
        try:
            for worker in idle:
                message = dispatch.help_message(job_id, worker)
                self._app.send_task(**message, retry=False, expires=_HELP_SECONDS)
        except Exception:  # noqa: BLE001 - whatever the broker's client raises: the search goes on without help
            _log.warning("job %s: could not call for help", job_id, exc_info=True)
        finally:
            self._calling.release()


def publisher(app: Celery, *, expires: float) -> Publish:
    """``expires``: seconds after which an unread message is void, as another one has been sent by then."""

    def publish(job: Job, living: Sequence[Worker]) -> None:
        app.send_task(**dispatch.message(job, living), retry=False, expires=expires)

    return publish
