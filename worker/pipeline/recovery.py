"""Recovery from errors during a job: one policy table, and the loop that applies it.

Every step of a job, and every round that a helper runs, goes through ``Recovery.run``, which repeats the step if the
policy says so and raises the error otherwise. ``POLICY`` also says how the attempt then ends.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from domain import errors
from domain.jobs import Stage
from domain.ports import Canceled
from worker.leases import CancelAsked, Heartbeat, LeaseLost, ShuttingDown, Stopped
from worker.pipeline.context import JobContext

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""First and longest pause between two tries to reach the blob store."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ENGINE_LOST = (errors.EngineCrashed, errors.EngineSilent, errors.EngineGarbled, errors.DeviceLost)

T = TypeVar("T")
_log = logging.getLogger(__name__)


class ErrorKind(Enum):
    """Kinds of errors."""

    DATABASE_AWAY = auto()
    """The database cannot be reached or is locked."""
    LEASE_OVERDUE = auto()
    """The lease expired during a database outage; no other worker need have claimed the job."""
    LEASE_LOST = auto()
    SHUTDOWN = auto()
    CANCELED = auto()
    BLOB_STORE_AWAY = auto()
    DISK_FULL = auto()
    """No space is left in the worker's home folder."""
    ENGINE_LOST = auto()
    """An engine or device died, which may be the machine's fault rather than the model's."""
    DATABASE_FAULT = auto()
    """The database rejected a statement: a programming error."""
    JOB = auto()
    """The request is at fault, or an engine returned an error."""
    UNEXPECTED = auto()
    """A programming error."""


class Ending(Enum):
    """How an attempt ends."""

    LEAVE = auto()
    """Write nothing: another worker may have claimed the job."""
    RELEASE = auto()
    """Return the job to the queue; the attempt does not count."""
    RELEASE_LATER = auto()
    """Likewise, behind other jobs."""
    CANCEL = auto()
    FAIL = auto()
    RAISE = auto()
    """Raise the error: the lease expires, and the job is tried again."""


class Retry(Enum):
    """What to do before a step is repeated."""

    DATABASE = auto()
    """Wait for it. Trials finished meanwhile are in this host's spool; another worker would measure them again."""
    BLOB_STORE = auto()
    """Wait for it, as long as the settings allow."""
    ENGINE = auto()
    """Nothing: the next request starts a new engine."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    retry: Retry | None = None
    ending: Ending
    """How the attempt ends when the retries are used up."""


POLICY: Mapping[ErrorKind, Rule] = {
    ErrorKind.DATABASE_AWAY: Rule(retry=Retry.DATABASE, ending=Ending.RAISE),
    ErrorKind.LEASE_OVERDUE: Rule(retry=Retry.DATABASE, ending=Ending.LEAVE),
    ErrorKind.LEASE_LOST: Rule(ending=Ending.LEAVE),
    ErrorKind.SHUTDOWN: Rule(ending=Ending.RELEASE),
    ErrorKind.CANCELED: Rule(ending=Ending.CANCEL),
    ErrorKind.BLOB_STORE_AWAY: Rule(retry=Retry.BLOB_STORE, ending=Ending.RELEASE_LATER),
    ErrorKind.DISK_FULL: Rule(ending=Ending.RELEASE_LATER),
    ErrorKind.ENGINE_LOST: Rule(retry=Retry.ENGINE, ending=Ending.FAIL),
    ErrorKind.DATABASE_FAULT: Rule(ending=Ending.RAISE),
    ErrorKind.JOB: Rule(ending=Ending.FAIL),
    ErrorKind.UNEXPECTED: Rule(ending=Ending.FAIL),
}
MOST_DATABASE_RETRIES = 10
"""In one attempt: an error that repeats may be no outage."""
MOST_ENGINE_RETRIES = 1
"""In one stage. Stage ``tune`` has none: it restarts engines itself, up to a limit of its own."""


def classify(error: BaseException, heartbeat: Heartbeat) -> ErrorKind:
    """Return the kind by which ``POLICY`` is keyed."""
    match error:
        case LeaseLost():
            return ErrorKind.LEASE_OVERDUE if heartbeat.is_overdue else ErrorKind.LEASE_LOST
        case ShuttingDown():
            return ErrorKind.SHUTDOWN
        case CancelAsked():
            return ErrorKind.CANCELED
        case SQLAlchemyError():
            return ErrorKind.DATABASE_AWAY if _is_outage(error) else ErrorKind.DATABASE_FAULT
        case errors.BlobStoreUnavailable():
            return ErrorKind.BLOB_STORE_AWAY
        case errors.DiskFull():
            return ErrorKind.DISK_FULL
        case errors.TunesmithError():
            return ErrorKind.ENGINE_LOST if isinstance(error, _ENGINE_LOST) else ErrorKind.JOB
    return ErrorKind.UNEXPECTED


def tolerate(context: JobContext, error: errors.TunesmithError, what: str | None = None) -> None:
    """Continue a stage without the part that failed, and note ``what`` failed.

    Raises the errors that end the whole attempt: those of the heartbeat's ``check``, and DiskFull.
    """
    context.heartbeat.check()
    if _is_full(error):
        raise _disk_full() from error
    if what is not None:
        context.note(f"{what}: {error.message[:500]}")


class Recovery:
    """Applies the policy to the steps of one attempt at a job, or to one round of a helper."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._database_retries = 0

    def run(self, step: Callable[[], T], *, stage: Stage | None = None, context: JobContext | None = None) -> T:
        """Run the step, as often as the policy allows, and return its value.

        Without the job's ``context`` and its ``stage``, the step is repeated only after a database outage. Raises what
        the last try raised; but Stopped if the heartbeat asked to stop, and DiskFull if the disk is full.
        """
        tries = _StageRetries(stage, context) if stage is not None and context is not None else None
        before: Callable[[], None] | None = None
        while True:
            try:
                if before is not None:
                    before()
                return step()
            except Exception as caught:
                error = self._cause(caught)
                before = self._retry(error, tries)
                if before is None and error is caught:
                    raise
                if before is None:
                    raise error from caught

    def ending(self, error: Exception) -> Ending:
        return POLICY[classify(error, self._heartbeat)].ending

    def _cause(self, error: Exception) -> Exception:
        if isinstance(error, Canceled | errors.EngineError):
            # A shutdown also ends the engine, which then looks like an engine failure.
            try:
                self._heartbeat.check()
            except Stopped as stopped:
                return stopped
        if isinstance(error, OSError | errors.EngineError) and _is_full(error):
            return _disk_full()
        return error

    def _retry(self, error: Exception, tries: _StageRetries | None) -> Callable[[], None] | None:
        """What to do before the step is repeated; None if it is not repeated."""
        retry = POLICY[classify(error, self._heartbeat)].retry
        if retry is Retry.DATABASE and self._database_retries < MOST_DATABASE_RETRIES:
            self._database_retries += 1
            _log.warning(
                "job %s: waiting for the database: %s", self._heartbeat.job_id, type(error).__name__, exc_info=error
            )
            return self._wait_for_database
        if tries is None:
            return None
        if retry is Retry.BLOB_STORE:
            return tries.wait_for_blobs(error)
        return tries.start_engines_again(error) if retry is Retry.ENGINE else None

    def _wait_for_database(self) -> None:
        self._heartbeat.wait_for_database()
        _log.warning("job %s: the database is back; continuing", self._heartbeat.job_id)


class _StageRetries:
    """The retries of one stage."""

    def __init__(self, stage: Stage, context: JobContext) -> None:
        self._stage = stage
        self._context = context
        self._engines_left = 0 if stage is Stage.TUNE else MOST_ENGINE_RETRIES
        self._pause = _FIRST_PAUSE_SECONDS
        self._deadline: float | None = None

    def wait_for_blobs(self, error: Exception) -> Callable[[], None] | None:
        """Wait with growing pauses; None once the time limit is reached."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._context.settings.blob_retry_seconds
        left = self._deadline - now
        if left <= 0:
            return None
        pause = min(self._pause, left)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

        def wait() -> None:
            self._context.note_once(f"{error}; waiting for it")
            until = time.monotonic() + pause
            while (rest := until - time.monotonic()) > 0:
                self._context.heartbeat.check()
                time.sleep(min(rest, self._context.settings.cancel_poll_seconds))

        return wait

    def start_engines_again(self, error: Exception) -> Callable[[], None] | None:
        if not self._engines_left:
            return None
        self._engines_left -= 1
        return lambda: self._context.note(f"{error} during {self._stage}; retrying")


def _is_outage(error: SQLAlchemyError) -> bool:
    """Whether the database could not be reached or was locked."""
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return lost or isinstance(error, OperationalError | InterfaceError | PoolTimeout)


def _disk_full() -> errors.DiskFull:
    return errors.DiskFull("no space left in the worker's home folder")


def _is_full(error: BaseException | None) -> bool:
    """Whether a full disk is the cause, directly or through a chain of causes."""
    if error is None:
        return False
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    if isinstance(error, errors.EngineRequestFailed) and error.engine_code == "disk_full":
        return True
    # An error that is raised again "from" itself is its own cause.
    return error.__cause__ is not error and _is_full(error.__cause__)
