"""Heartbeats: renew the lease of a claimed job or round, and notice when to stop.

A thread renews the lease and reads the state of what was claimed. The pipeline calls ``stop_wanted`` often, and
``check`` wherever it may stop.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

from sqlalchemy.exc import SQLAlchemyError

from domain import errors
from domain.jobs import Job, JobState, Lease
from domain.shared_rounds import SharedRound
from process import logs
from storage import jobs, shared_rounds
from storage.database import Database
from worker import clock
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The attempt at the job, or the round, ends early."""


class LeaseLost(Stopped):
    """Another worker may have claimed the job: this one must not write any more."""


class CancelAsked(Stopped):
    """The job is to be canceled."""


class ShuttingDown(Stopped):
    """The worker process is ending; the job returns to the queue."""


class Heartbeat(ABC):
    """Renew a lease while the context is open."""

    _may_come_back: ClassVar[bool] = False
    """Whether a lease that expired during a database outage may be renewed."""

    def __init__(
        self,
        database: Database,
        settings: WorkerSettings,
        *,
        job_id: str,
        lease: Lease,
        stopping: Callable[[], bool],
        name: str,
    ) -> None:
        self.job_id = job_id
        self.lease = lease
        self._database = database
        self._settings = settings
        self._stopping = stopping
        self._lost = threading.Event()
        self._overdue = threading.Event()
        """The lease expired because it could not be renewed in time; no other worker need have claimed it yet."""
        self._done = threading.Event()
        self._pause = min(settings.cancel_poll_seconds, settings.lease_seconds / 4)
        self._started = self._renewed = time.monotonic()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=logs.inherited(self._keep), name=name, daemon=True)

    @property
    def seconds(self) -> float:
        """Seconds since the claim."""
        return time.monotonic() - self._started

    @property
    def is_overdue(self) -> bool:
        """Whether the lease expired during a database outage and may still be renewed."""
        return self._overdue.is_set() and not self._lost.is_set()

    def stop_wanted(self) -> bool:
        return self._reason() is not None

    def check(self) -> None:
        """Raise LeaseLost, CancelAsked or ShuttingDown if there is a reason to stop."""
        reason = self._reason()
        if reason is not None:
            raise reason

    def require(self, won: bool) -> None:
        """Raise LeaseLost unless a compare-and-set write has won; a surrounding transaction is rolled back."""
        if not won:
            self._lost.set()
            raise LeaseLost

    def wait_for_database(self) -> None:
        """Wait until the database answers and has renewed the lease.

        Raises LeaseLost if another worker has claimed the job or round, and ShuttingDown.
        """
        while True:
            if self._lost.is_set():
                raise LeaseLost
            if self._stopping():
                raise ShuttingDown
            time.sleep(self._pause)
            started = time.monotonic()
            try:
                renewed = self._renew()
            except SQLAlchemyError:
                continue
            self.require(renewed)
            with self._lock:
                self._renewed = started
                self._overdue.clear()
            return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @abstractmethod
    def _renew(self) -> bool:
        """Whether this worker still holds the lease. Raises SQLAlchemyError."""

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Whether the job or round still exists and is still wanted. Raises SQLAlchemyError."""

    def _reason(self) -> Stopped | None:
        """The reason to stop, or None."""
        if self._lost.is_set() or self._overdue.is_set():
            return LeaseLost()
        return ShuttingDown() if self._stopping() else None

    def _keep(self) -> None:
        while not self._done.wait(self._pause) and not self._lost.is_set():
            try:
                self._look()
            except SQLAlchemyError:
                _log.warning("job %s: the database does not respond", self.job_id, exc_info=True)
            with self._lock:
                if time.monotonic() - self._renewed > self._settings.lease_seconds:
                    (self._overdue if self._may_come_back else self._lost).set()

    def _look(self) -> None:
        started = time.monotonic()
        # An overdue lease is renewed by ``wait_for_database``, once the step has stopped.
        if started - self._renewed >= self._settings.lease_seconds / 4 and not self._overdue.is_set():
            if not self._renew():
                self._lost.set()
                return
            self._renewed = started
        if not self._is_wanted():
            self._lost.set()


class JobHeartbeat(Heartbeat):
    """The heartbeat of a claimed job."""

    _may_come_back = True

    def __init__(self, database: Database, job: Job, settings: WorkerSettings, shutdown: threading.Event) -> None:
        if job.lease is None:
            raise ValueError(f"job {job.id} is not claimed")
        super().__init__(
            database, settings, job_id=job.id, lease=job.lease, stopping=shutdown.is_set, name=f"lease {job.id}"
        )
        self._is_canceled = job.state is JobState.CANCELING

    def _reason(self) -> Stopped | None:
        reason = super()._reason()
        return CancelAsked() if self._is_canceled and not isinstance(reason, LeaseLost) else reason

    def _is_wanted(self) -> bool:
        try:
            with self._database.reading() as session:
                state = jobs.get(session, self.job_id).state
        except errors.JobNotFound:
            return False
        self._is_canceled = self._is_canceled or state is JobState.CANCELING
        return True

    def _renew(self) -> bool:
        seconds = self._settings.lease_seconds
        with self._database.transaction() as session:
            return jobs.renew(session, self.job_id, self.lease, now=clock.now(), lease_seconds=seconds)


class RoundHeartbeat(Heartbeat):
    """The heartbeat of a claimed round.

    A round that is not renewed in time is offered to others at once. Canceling the job ends the round, too.
    """

    def __init__(
        self, database: Database, claimed: SharedRound, settings: WorkerSettings, stopping: Callable[[], bool]
    ) -> None:
        if claimed.worker_id is None or claimed.lease_expires_at is None:
            raise ValueError(f"round {claimed.id} is not claimed")
        lease = Lease(worker_id=claimed.worker_id, attempt=claimed.attempt, expires_at=claimed.lease_expires_at)
        name = f"round {claimed.id} of {claimed.job_id}"
        super().__init__(database, settings, job_id=claimed.job_id, lease=lease, stopping=stopping, name=name)
        self._claimed = claimed

    def _is_wanted(self) -> bool:
        with self._database.reading() as session:
            return shared_rounds.is_wanted(session, self._claimed)

    def _renew(self) -> bool:
        seconds = self._settings.lease_seconds
        with self._database.transaction() as session:
            return shared_rounds.renew(session, self._claimed, now=clock.now(), lease_seconds=seconds)
