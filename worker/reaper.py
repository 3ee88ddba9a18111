"""Threads of a worker process beside its job: signs of life, messages for jobs that lost theirs, calls of webhooks."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from domain import capabilities, release
from domain.destinations import AllowedHosts
from domain.jobs import Job
from domain.workers import Worker
from storage import chores, jobs, newer_jobs, workers
from storage.database import Database
from worker import clock, housekeeping
from worker.posting import Poster
from worker.runtime import Runtime
from worker.settings import WorkerSettings
from worker.webhooks import Couriers

_log = logging.getLogger(__name__)

_MOST_CALLED_FOR = 1000
_VOID_EVERY = timedelta(minutes=10)

Publish = Callable[[Job, Sequence[Worker]], None]
"""Send the message of a job, by what of workers lives."""


RemoveVoid = Callable[[datetime], int]
"""Remove the messages that are void by then and that nobody has read; returns how many."""


def start(runtime: Runtime, publish: Publish, remove_void: RemoveVoid) -> list[threading.Thread]:
    """Runs until ``runtime.shutdown`` is set."""
    threads = [
        _every(runtime.settings.reaper_seconds, runtime, "reaper", lambda: reap(runtime, publish)),
        _heartbeat(runtime),
        _every(runtime.settings.reaper_seconds, runtime, "webhooks", couriers(runtime).send_due),
        _every(housekeeping.SECONDS, runtime, "housekeeping", lambda: tidy(runtime)),
        _every(_VOID_EVERY.total_seconds(), runtime, "void messages", lambda: clear_queues(runtime, remove_void)),
    ]
    for thread in threads:
        thread.start()
    return threads


def couriers(runtime: Runtime) -> Couriers:
    poster = Poster(allowed=AllowedHosts.parse(runtime.settings.webhook_hosts))
    return Couriers(database=runtime.database, poster=poster, stopping=runtime.shutdown)


def tidy(runtime: Runtime) -> None:
    housekeeping.tidy(runtime.database, runtime.blobs, runtime.settings, now=clock.now())


def reap(runtime: Runtime, publish: Publish) -> list[str]:
    """Publish what waits without a message; returns the ids. Several workers doing it at once costs messages only."""
    database, settings = runtime.database, runtime.settings
    with database.reading() as session:
        waiting = jobs.waiting(
            session,
            now=clock.now(),
            judging=clock.judging(),
            unpublished_for=settings.republish_seconds,
            pause=settings.attempt_pause_seconds,
            max_attempts=settings.max_attempts,
        )
        found = newer_jobs.readable(session, waiting)
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
    return [job.id for job in found]


def clear_queues(runtime: Runtime, remove_void: RemoveVoid) -> None:
    """One of all workers does it now and then."""
    now = clock.now()
    with runtime.database.transaction() as session:
        if not chores.take(session, "void messages", every=_VOID_EVERY, now=now):
            return
    removed = remove_void(now)
    if removed:
        _log.info("removed %d void messages that nobody had read", removed)


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
        queued = newer_jobs.readable(session, jobs.queued(session, limit=_MOST_CALLED_FOR))
    able = [job for job in queued if capabilities.lacking(job.request, announced) is None]
    called = [job.id for job in able if not capabilities.serving(job.request, others)]
    for job_id in called:
        with runtime.database.transaction() as session:
            jobs.mark_unpublished(session, job_id)
    return called


def leave(runtime: Runtime) -> None:
    """End this process softly, as the database is for another release: its job goes back, for a worker of that one."""
    if not runtime.shutdown.is_set():
        _log.error("the database was migrated for another release: this worker, of %s, ends", release.VERSION)
        os.kill(os.getpid(), signal.SIGTERM)


def beat(runtime: Runtime) -> None:
    """Say that this worker lives; the first time, call for what waited for it. Ends it when it is outdated."""
    announced, comes = runtime.announce(), not runtime.has_come
    with runtime.database.transaction() as session:
        ahead = clock.synchronize(session, patience=runtime.settings.patience)
        now = replace(announced, current_job=runtime.current_job, clock_ahead=ahead, last_seen_at=clock.now())
        workers.beat(session, now)
        outdated = runtime.is_outdated(session)
    if outdated:
        leave(runtime)
    elif comes:
        call_for_work(runtime)
        runtime.has_come = True


def _heartbeat(runtime: Runtime) -> threading.Thread:
    return _every(runtime.settings.heartbeat_seconds, runtime, "heartbeat", lambda: beat(runtime))


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
