"""Keeping a job while working on it, and noticing when to stop.

A thread renews the lease and looks at the job's state; the pipeline asks ``stop_wanted`` often and ``check`` at every
place where it may stop.
"""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from domain import errors, logs
from domain.jobs import Job, JobState, Lease
from storage import jobs
from storage.database import Database
from worker import clock
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The job's work ends here, before its time."""


class LeaseLost(Stopped):
    """Another worker may have the job: nothing may be written any more."""


class CancelAsked(Stopped):
    """Somebody asked for the job's cancellation."""


class ShuttingDown(Stopped):
    """The worker process is to end; the job goes back to the queue."""


class LeaseKeeper:
    """A context manager around the work on one claimed job."""

    def __init__(self, database: Database, job: Job, settings: WorkerSettings, shutdown: threading.Event) -> None:
        if job.lease is None:
            raise ValueError(f"job {job.id} is not claimed")
        self.lease: Lease = job.lease
        self._database = database
        self.job_id = job.id
        self._settings = settings
        self._shutdown = shutdown
        self._lost = threading.Event()
        self._overdue = threading.Event()
        """Lost because it could not be renewed in time: nobody need have the job yet."""
        self._cancel = threading.Event()
        self._done = threading.Event()
        if job.state is JobState.CANCELING:
            self._cancel.set()
        self._pause = min(settings.cancel_poll_seconds, settings.lease_seconds / 4)
        self._renewed = time.monotonic()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=logs.inherited(self._keep), name=f"lease {job.id}", daemon=True)

    def stop_wanted(self) -> bool:
        return any(each.is_set() for each in (self._lost, self._overdue, self._cancel, self._shutdown))

    @property
    def is_overdue(self) -> bool:
        """Whether the lease ran out because the database was away, and may be had back."""
        return self._overdue.is_set() and not self._lost.is_set()

    def wait_for_database(self) -> None:
        """Until it answers and has renewed the lease. Raises LeaseLost when somebody else has the job by then, and
        ShuttingDown."""
        while not self._shutdown.wait(self._pause):
            started = time.monotonic()
            try:
                renewed = self._renew()
            except SQLAlchemyError:
                continue
            if not renewed:
                self._lost.set()
                raise LeaseLost
            with self._lock:
                self._renewed = started
                self._overdue.clear()
            return
        raise ShuttingDown

    def check(self) -> None:
        """Raises LeaseLost, CancelAsked or ShuttingDown when there is a reason to."""
        if self._lost.is_set() or self._overdue.is_set():
            raise LeaseLost
        if self._cancel.is_set():
            raise CancelAsked
        if self._shutdown.is_set():
            raise ShuttingDown

    def require(self, won: bool) -> None:
        """Raises LeaseLost unless a write that names the lease has won: a surrounding transaction is rolled back."""
        if not won:
            self._lost.set()
            raise LeaseLost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._done.wait(self._pause) and not self._lost.is_set():
            try:
                self._look()
            except SQLAlchemyError:
                _log.warning("job %s: the database does not answer", self.job_id, exc_info=True)
            with self._lock:
                if time.monotonic() - self._renewed > self._settings.lease_seconds:
                    self._overdue.set()

    def _look(self) -> None:
        started = time.monotonic()
        # Whoever works on the job has it back, once it has stopped.
        if started - self._renewed >= self._settings.lease_seconds / 4 and not self._overdue.is_set():
            if not self._renew():
                self._lost.set()
                return
            self._renewed = started
        try:
            with self._database.reading() as session:
                state = jobs.get(session, self.job_id).state
        except errors.JobNotFound:
            self._lost.set()
            return
        if state is JobState.CANCELING:
            self._cancel.set()

    def _renew(self) -> bool:
        seconds = self._settings.lease_seconds
        with self._database.transaction() as session:
            return jobs.renew(session, self.job_id, self.lease, now=clock.now(), lease_seconds=seconds)
