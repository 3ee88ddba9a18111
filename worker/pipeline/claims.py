"""Keeping a claimed round while its trials run, as ``worker.leases`` keeps a job."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from domain import logs
from domain.jobs import Lease
from domain.shared_rounds import SharedRound
from storage import shared_rounds
from storage.database import Database
from worker import clock
from worker.leases import LeaseLost, ShuttingDown
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)


class RoundKeeper:
    """A context manager around the work on one claimed round; the job's cancellation ends the round as well."""

    def __init__(
        self, database: Database, claimed: SharedRound, settings: WorkerSettings, stopping: Callable[[], bool]
    ) -> None:
        if claimed.worker_id is None or claimed.lease_expires_at is None:
            raise ValueError(f"round {claimed.id} is not claimed")
        self.lease = Lease(worker_id=claimed.worker_id, attempt=claimed.attempt, expires_at=claimed.lease_expires_at)
        self._database = database
        self._claimed = claimed
        self._settings = settings
        self._stopping = stopping
        self._lost = threading.Event()
        self._done = threading.Event()
        self._pause = min(settings.cancel_poll_seconds, settings.lease_seconds / 4)
        self._started = self._renewed = time.monotonic()
        self._thread = threading.Thread(
            target=logs.inherited(self._keep), name=f"round {claimed.id} of {claimed.job_id}", daemon=True
        )

    @property
    def seconds(self) -> float:
        """Since the claim."""
        return time.monotonic() - self._started

    @property
    def job_id(self) -> str:
        return self._claimed.job_id

    @property
    def is_overdue(self) -> bool:
        """Never: a round that was not renewed in time is offered to others at once."""
        return False

    def wait_for_database(self) -> None:
        """Until it answers and has renewed the claim. Raises LeaseLost when it would not in time, and ShuttingDown."""
        while True:
            self.check()
            try:
                renewed = self._renew()
            except SQLAlchemyError:
                time.sleep(self._pause)
                continue
            if not renewed:
                self._lost.set()
                raise LeaseLost
            return

    def stop_wanted(self) -> bool:
        return self._lost.is_set() or self._stopping()

    def check(self) -> None:
        """Raises LeaseLost or ShuttingDown when there is a reason to."""
        if self._lost.is_set():
            raise LeaseLost
        if self._stopping():
            raise ShuttingDown

    def require(self, won: bool) -> None:
        """Raises LeaseLost unless a write that names the claim has won: a surrounding transaction is rolled back."""
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
                _log.warning("job %s: the database does not answer", self._claimed.job_id, exc_info=True)
            if time.monotonic() - self._renewed > self._settings.lease_seconds:
                self._lost.set()

    def _look(self) -> None:
        if time.monotonic() - self._renewed >= self._settings.lease_seconds / 4 and not self._renew():
            self._lost.set()
            return
        with self._database.reading() as session:
            if not shared_rounds.is_wanted(session, self._claimed):
                self._lost.set()

    def _renew(self) -> bool:
        started, seconds = time.monotonic(), self._settings.lease_seconds
        with self._database.transaction() as session:
            renewed = shared_rounds.renew(session, self._claimed, now=clock.now(), lease_seconds=seconds)
        if renewed:
            self._renewed = started
        return renewed
