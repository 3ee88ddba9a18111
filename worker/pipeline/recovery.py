"""What a worker does when something goes wrong under a job: one table, and the loop that applies it.

Every step of a job, and every round that a helper runs, goes through ``Recovery.run``. It repeats the step where the
table says so, and raises what ends the work otherwise; ``POLICY`` also says how an attempt then ends.
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
"""Between two tries to use a blob store that cannot be used."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ENGINE_LOST = (errors.EngineCrashed, errors.EngineSilent, errors.EngineGarbled, errors.DeviceLost)

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Trouble(Enum):
    """What went wrong."""

    DATABASE_AWAY = auto()
    """Or it would not take a turn."""
    LEASE_OVERDUE = auto()
    """It could not be renewed in time, as the database was away; nobody else need have the job."""
    LEASE_LOST = auto()
    SHUTDOWN = auto()
    CANCELED = auto()
    BLOB_STORE_AWAY = auto()
    DISK_FULL = auto()
    """The worker's home folder has no room, on this side or an engine's."""
    ENGINE_LOST = auto()
    """The machine's fault, maybe, and not the model's."""
    DATABASE_FAULT = auto()
    """The database answered, and refused: a fault of ours."""
    JOB = auto()
    """What was asked for, or an engine that answered, is at fault."""
    UNEXPECTED = auto()
    """A fault of ours."""


class Ending(Enum):
    """How an attempt ends."""

    LEAVE = auto()
    """Without a word: others may have the job."""
    RELEASE = auto()
    """The job goes back, and the attempt does not count."""
    RELEASE_LATER = auto()
    """The same, and others have their turn first."""
    CANCEL = auto()
    FAIL = auto()
    RAISE = auto()
    """Nothing can be said about the job: its lease runs out, and it is tried again."""


class Retry(Enum):
    """What comes before a step is done again."""

    DATABASE = auto()
    """Waiting for it. Trials finished meanwhile are in this host's spool: another worker would pay for them again."""
    BLOB_STORE = auto()
    """Waiting for it, as long as the settings allow."""
    ENGINE = auto()
    """Nothing: whoever asks for an engine that died is given a fresh one."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    retry: Retry | None = None
    ending: Ending
    """When the retries are used up."""


POLICY: Mapping[Trouble, Rule] = {
    Trouble.DATABASE_AWAY: Rule(retry=Retry.DATABASE, ending=Ending.RAISE),
    Trouble.LEASE_OVERDUE: Rule(retry=Retry.DATABASE, ending=Ending.LEAVE),
    Trouble.LEASE_LOST: Rule(ending=Ending.LEAVE),
    Trouble.SHUTDOWN: Rule(ending=Ending.RELEASE),
    Trouble.CANCELED: Rule(ending=Ending.CANCEL),
    Trouble.BLOB_STORE_AWAY: Rule(retry=Retry.BLOB_STORE, ending=Ending.RELEASE_LATER),
    Trouble.DISK_FULL: Rule(ending=Ending.RELEASE_LATER),
    Trouble.ENGINE_LOST: Rule(retry=Retry.ENGINE, ending=Ending.FAIL),
    Trouble.DATABASE_FAULT: Rule(ending=Ending.RAISE),
    Trouble.JOB: Rule(ending=Ending.FAIL),
    Trouble.UNEXPECTED: Rule(ending=Ending.FAIL),
}
MOST_DATABASE_RETRIES = 10
"""In one attempt: what fails time after time may be no outage, and attempts are counted."""
MOST_ENGINE_RETRIES = 1
"""In one stage. Tuning has none: it goes on with fresh engines by itself, up to a limit of its own."""


def trouble_of(error: BaseException, heartbeat: Heartbeat) -> Trouble:
    """The row of the table that an error belongs to."""
    match error:
        case LeaseLost():
            return Trouble.LEASE_OVERDUE if heartbeat.is_overdue else Trouble.LEASE_LOST
        case ShuttingDown():
            return Trouble.SHUTDOWN
        case CancelAsked():
            return Trouble.CANCELED
        case SQLAlchemyError():
            return Trouble.DATABASE_AWAY if _is_outage(error) else Trouble.DATABASE_FAULT
        case errors.BlobStoreUnavailable():
            return Trouble.BLOB_STORE_AWAY
        case errors.DiskFull():
            return Trouble.DISK_FULL
        case errors.TunesmithError():
            return Trouble.ENGINE_LOST if isinstance(error, _ENGINE_LOST) else Trouble.JOB
    return Trouble.UNEXPECTED


def forgive(context: JobContext, error: errors.TunesmithError, what: str | None = None) -> None:
    """Let a stage go on without a part of it that failed, and note ``what`` failed.

    Raises what ends the whole attempt: what the heartbeat's ``check`` raises, and DiskFull.
    """
    context.heartbeat.check()
    if _is_full(error):
        raise _disk_full() from error
    if what is not None:
        context.note(f"{what}: {error.message[:500]}")


class Recovery:
    """The policy applied to the steps of one attempt at a job, or to one round of a helper."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._database_retries = 0

    def run(self, step: Callable[[], T], *, stage: Stage | None = None, context: JobContext | None = None) -> T:
        """Run the step, as often as the policy allows, and return its value.

        Without the job's ``context`` and its ``stage``, the step is repeated only after a database outage. Raises what
        the last try raised; but Stopped if the heartbeat asked to stop, and DiskFull if the disk is full.
        """
        tries = _Tries(stage, context) if stage is not None and context is not None else None
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
        return POLICY[trouble_of(error, self._heartbeat)].ending

    def _cause(self, error: Exception) -> Exception:
        if isinstance(error, Canceled | errors.EngineError):
            # A job that is to stop may look like a failing engine, which the shutdown ended as well.
            try:
                self._heartbeat.check()
            except Stopped as stopped:
                return stopped
        if isinstance(error, OSError | errors.EngineError) and _is_full(error):
            return _disk_full()
        return error

    def _retry(self, error: Exception, tries: _Tries | None) -> Callable[[], None] | None:
        """What to do before the step is done again; None where it is not."""
        retry = POLICY[trouble_of(error, self._heartbeat)].retry
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


class _Tries:
    """What one stage has used up of its retries."""

    def __init__(self, stage: Stage, context: JobContext) -> None:
        self._stage = stage
        self._context = context
        self._engines_left = 0 if stage is Stage.TUNE else MOST_ENGINE_RETRIES
        self._pause = _FIRST_PAUSE_SECONDS
        self._deadline: float | None = None

    def wait_for_blobs(self, error: Exception) -> Callable[[], None] | None:
        """With growing pauses, as nothing is wrong with the job; None once the time is over."""
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
    """Whether the database was away, or would not take a turn."""
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return lost or isinstance(error, OperationalError | InterfaceError | PoolTimeout)


def _disk_full() -> errors.DiskFull:
    return errors.DiskFull("no space left in the worker's home folder")


def _is_full(error: BaseException | None) -> bool:
    """Whether a write that found no room is the cause, or the cause of its cause."""
    if error is None:
        return False
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    if isinstance(error, errors.EngineRequestFailed) and error.engine_code == "disk_full":
        return True
    # An error that is raised again "from" itself is its own cause.
    return error.__cause__ is not error and _is_full(error.__cause__)
