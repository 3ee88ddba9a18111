"""Periodic tasks of a worker process: looking for jobs, heartbeats, webhooks, housekeeping."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from domain import release
from domain.destinations import AllowedHosts
from storage import workers
from storage.database import Database
from worker import clock, housekeeping
from worker.http_client import HttpClient
from worker.runtime import Runtime
from worker.settings import WorkerSettings
from worker.webhooks import WebhookDispatcher

_log = logging.getLogger(__name__)


def start(runtime: Runtime) -> list[threading.Thread]:
    """Start the threads, which run until ``runtime.shutdown`` is set."""
    seconds = runtime.settings.look_seconds
    threads = [
        # Finds waiting jobs, and those that lost their worker, even if the broker or its messages are lost.
        _every(seconds, runtime, "look for jobs", runtime.look),
        _every(runtime.settings.heartbeat_seconds, runtime, "heartbeat", lambda: beat(runtime)),
        _every(seconds, runtime, "webhooks", dispatcher(runtime).send_due),
        _every(housekeeping.SECONDS, runtime, "housekeeping", lambda: tidy(runtime)),
    ]
    for thread in threads:
        thread.start()
    return threads


def dispatcher(runtime: Runtime) -> WebhookDispatcher:
    client = HttpClient(allowed=AllowedHosts.parse(runtime.settings.webhook_hosts))
    return WebhookDispatcher(database=runtime.database, client=client, stopping=runtime.shutdown)


def tidy(runtime: Runtime) -> None:
    housekeeping.tidy(runtime.database, runtime.blobs, runtime.settings, now=clock.now())


def forget_gone(database: Database, settings: WorkerSettings) -> None:
    before = clock.now() - timedelta(seconds=settings.forget_worker_seconds)
    with database.reading() as session:
        gone = [worker.id for worker in workers.known(session) if worker.last_seen_at < before]
    if gone:
        with database.transaction() as session:
            workers.forget_gone(session, seen_before=before)


def leave(runtime: Runtime) -> None:
    """End this process gracefully after a migration to another release; its job is released to a worker of that one."""
    if not runtime.shutdown.is_set():
        _log.error(
            "the database was migrated to another release; this worker of release %s is stopping", release.VERSION
        )
        os.kill(os.getpid(), signal.SIGTERM)


def beat(runtime: Runtime) -> None:
    """Store this worker's heartbeat and forget workers without one. Ends the process if its release is outdated."""
    announced = runtime.announce()
    with runtime.database.transaction() as session:
        ahead = clock.synchronize(session, settle_seconds=runtime.settings.settle_seconds)
        now = replace(announced, current_job=runtime.current_job, clock_ahead=ahead, last_seen_at=clock.now())
        workers.beat(session, now)
        outdated = runtime.is_outdated(session)
    if outdated:
        leave(runtime)
    else:
        forget_gone(runtime.database, runtime.settings)


def _every(seconds: float, runtime: Runtime, name: str, action: Callable[[], object]) -> threading.Thread:
    def loop() -> None:
        while True:
            try:
                action()
            except Exception:  # noqa: BLE001 - the thread must outlive a database or broker that is away
                _log.warning("%s: periodic task failed; retrying", name, exc_info=True)
            if runtime.shutdown.wait(seconds):
                return

    return threading.Thread(target=loop, name=name, daemon=True)
