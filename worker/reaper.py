"""Threads of a worker process beside its job: signs of life, messages for jobs that lost theirs, calls of webhooks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from domain import capabilities
from domain.destinations import AllowedHosts
from domain.jobs import Job, JobState
from domain.workers import Worker
from storage import jobs, workers
from storage.database import Database
from worker import clock, housekeeping
from worker.posting import Poster
from worker.runtime import Runtime
from worker.settings import WorkerSettings
from worker.webhooks import Couriers

_log = logging.getLogger(__name__)

_MOST_CALLED_FOR = 1000

Publish = Callable[[Job, Sequence[Worker]], None]
"""Send the message of a job, by what of workers lives."""


def start(runtime: Runtime, publish: Publish) -> list[threading.Thread]:
    """Runs until ``runtime.shutdown`` is set."""
    threads = [
        _every(runtime.settings.reaper_seconds, runtime, "reaper", lambda: reap(runtime, publish)),
        _heartbeat(runtime),
        _every(runtime.settings.reaper_seconds, runtime, "webhooks", couriers(runtime).send_due),
        _every(housekeeping.SECONDS, runtime, "housekeeping", lambda: tidy(runtime)),
    ]
    for thread in threads:
        thread.start()
    return threads


def couriers(runtime: Runtime) -> Couriers:
    poster = Poster(allowed=AllowedHosts.parse(runtime.settings.webhook_hosts))
    return Couriers(database=runtime.database, poster=poster, stopping=runtime.shutdown)


def tidy(runtime: Runtime) -> None:
    housekeeping.tidy(runtime.database, runtime.blobs, now=clock.now())


def reap(runtime: Runtime, publish: Publish) -> list[str]:
    """Publish what waits without a message; returns the ids. Several workers doing it at once costs messages only."""
    database, settings = runtime.database, runtime.settings
    with database.reading() as session:
        waiting = jobs.waiting(session, now=clock.now(), unpublished_for=settings.republish_seconds)
        found = [jobs.get(session, job_id) for job_id in waiting]
        since = clock.now() - timedelta(seconds=settings.worker_alive_seconds)
        living = workers.known(session, seen_since=since) if found else []
    for job in found:
        with database.transaction() as session:
            jobs.mark_published(session, job.id, now=clock.now())
        try:
            publish(job, living)
        except Exception:
            with database.transaction() as session:
                jobs.mark_unpublished(session, job.id)
            raise
    forget_gone(database, settings)
    return waiting


def forget_gone(database: Database, settings: WorkerSettings) -> None:
    before = clock.now() - timedelta(seconds=settings.forget_worker_seconds)
    with database.reading() as session:
        gone = [worker.id for worker in workers.known(session) if worker.last_seen_at < before]
    if gone:
        with database.transaction() as session:
            workers.forget_gone(session, seen_before=before)


def call_for_work(runtime: Runtime) -> list[str]:
    """Ask for messages of jobs that waited for a worker such as this one, which has just come; returns their ids."""
    announced = runtime.announce()
    since = clock.now() - timedelta(seconds=runtime.settings.worker_alive_seconds)
    with runtime.database.reading() as session:
        others = [one for one in workers.known(session, seen_since=since) if one.id != announced.id]
        queued, _ = jobs.page(session, limit=_MOST_CALLED_FOR, state=JobState.QUEUED)
    able = [job for job in queued if capabilities.lacking(job.request, announced) is None]
    called = [job.id for job in able if not capabilities.serving(job.request, others)]
    for job_id in called:
        with runtime.database.transaction() as session:
            jobs.mark_unpublished(session, job_id)
    return called


def _heartbeat(runtime: Runtime) -> threading.Thread:
    came = threading.Event()

    def beat() -> None:
        announced = replace(runtime.announce(), current_job=runtime.current_job, last_seen_at=clock.now())
        with runtime.database.transaction() as session:
            workers.beat(session, announced)
        if not came.is_set():
            call_for_work(runtime)
            came.set()

    return _every(runtime.settings.heartbeat_seconds, runtime, "heartbeat", beat)


def _every(seconds: float, runtime: Runtime, name: str, action: Callable[[], object]) -> threading.Thread:
    def loop() -> None:
        while True:
            try:
                action()
            except Exception:  # noqa: BLE001 - the thread must outlive a database or broker that is away
                _log.warning("%s: could not do its round; will try again", name, exc_info=True)
            if runtime.shutdown.wait(seconds):
                return

    return threading.Thread(target=loop, name=name, daemon=True)
