"""Delete what is no longer needed: old responses and sessions, broken uploads, unreferenced blobs, old logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from domain import errors
from domain.blobs import BlobStore
from storage import browser_sessions, events, garbage, idempotency, job_logs, periodic_tasks
from storage.blobs import ownership
from storage.database import Database
from storage.garbage import Collected
from worker import paths
from worker.settings import WorkerSettings

SECONDS = 3600.0
"""Pause between two runs."""
_CUT_OFF_SECONDS = 24 * 3600.0
_EVERY = timedelta(days=1)
_IN_USE = timedelta(hours=1)
"""For so long after its last change, an ended job's folder is left to the job's own worker."""
_JOBS_AT_ONCE = 100
_log = logging.getLogger(__name__)


def tidy(database: Database, blobs: BlobStore, settings: WorkerSettings, *, now: datetime) -> None:
    """Run all tasks. Several workers may do so at once; tasks for one worker at a time are claimed in the database."""
    with database.transaction() as session:
        idempotency.forget(session, made_before=now - idempotency.KEPT)
        browser_sessions.forget_expired(session, now=now)
    _remove_work(database, settings.home, now=now)
    if settings.keep_logs_days is not None:
        before = now - timedelta(days=settings.keep_logs_days)
        _remove_logs(settings.home, before)
        if _claims(database, "events", now):
            _in_batches(database, events.forget, before)
            _in_batches(database, job_logs.forget, before)
    # Last, as an unreachable store ends the run.
    is_ours = _has_store(database, blobs, now=now)
    blobs.sweep(older_than=_CUT_OFF_SECONDS)
    # Not on the first run: an operator has time to notice that a new database uses the store of another.
    if is_ours and _claims(database, "garbage", now, at_once=False):
        _collect(database, blobs, settings, now=now)


def collect(
    database: Database,
    blobs: BlobStore,
    settings: WorkerSettings,
    *,
    now: datetime,
    dry_run: bool = False,
    adopt: bool = False,
) -> Collected:
    """``garbage.collect`` with the grace period of the settings."""
    grace = timedelta(hours=settings.blob_grace_hours)
    return garbage.collect(database, blobs, now=now, grace=grace, dry_run=dry_run, adopt=adopt)


def _has_store(database: Database, blobs: BlobStore, *, now: datetime) -> bool:
    """Whether the store belongs to this database; a store without an owner is claimed for it."""
    try:
        ownership.claim(database, blobs, now=now)
    except errors.ForeignBlobStore as error:
        _log.warning("%s. %s", error.message, error.hint)
        return False
    return True


def _collect(database: Database, blobs: BlobStore, settings: WorkerSettings, *, now: datetime) -> None:
    try:
        collected = collect(database, blobs, settings, now=now)
    except errors.ConfigurationError as error:
        _log.warning("%s. %s", error.message, error.hint)
    else:
        _log.info("removed %d unreferenced blobs (%d bytes)", collected.blobs, collected.size_bytes)


def _claims(database: Database, task: str, now: datetime, *, at_once: bool = True) -> bool:
    with database.transaction() as session:
        return periodic_tasks.take(session, task, every=_EVERY, now=now, at_once=at_once)


def _in_batches(database: Database, forget: Callable[..., int], before: datetime) -> None:
    """In small transactions, so that running jobs can write in between."""
    forgotten = _JOBS_AT_ONCE
    while forgotten == _JOBS_AT_ONCE:
        with database.transaction() as session:
            forgotten = forget(session, ended_before=before, most_jobs=_JOBS_AT_ONCE)


def _remove_logs(home: Path, before: datetime) -> None:
    """Remove the logs of jobs that this host has not written to since ``before``."""
    for path in _old(paths.job_log(home, "any").parent, before):
        path.unlink(missing_ok=True)


def _remove_work(database: Database, home: Path, *, now: datetime) -> None:
    """Remove the folders of jobs that this host lost and that ended elsewhere."""
    for folder in _old(paths.work(home, "any").parent, now - _IN_USE):
        paths.clear_work(database, home, folder.name)


def _old(folder: Path, before: datetime) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < before.timestamp():
                yield path
