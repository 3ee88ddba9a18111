"""The table of what a worker does about each kind of trouble."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from domain import errors
from domain.jobs import Lease
from domain.ports import Canceled
from worker.leases import CancelAsked, LeaseLost, ShuttingDown, Stopped
from worker.pipeline.recovery import Ending, Recovery

AWAY = OperationalError("SELECT 1", {}, Exception("server closed the connection unexpectedly"))
REFUSED = IntegrityError("INSERT", {}, Exception("NOT NULL constraint failed"))
FULL = OSError(errno.ENOSPC, "No space left on device")
CRASHED = errors.EngineCrashed("the relay engine was lost")


@dataclass
class Keeper:
    job_id: str = "j-1"
    is_overdue: bool = False
    reason: Stopped | None = None
    waited: int = 0

    @property
    def lease(self) -> Lease:
        return Lease(worker_id="w", attempt=1, expires_at=datetime(2026, 1, 1, tzinfo=UTC))

    def stop_wanted(self) -> bool:
        return self.reason is not None

    def check(self) -> None:
        if self.reason is not None:
            raise self.reason

    def require(self, won: bool) -> None:
        if not won:
            raise LeaseLost

    def wait_for_database(self) -> None:
        self.waited += 1
        self.is_overdue = False


def attempt(keeper: Keeper, *raised: Exception) -> tuple[Ending | None, int]:
    """How an attempt ends whose first tries raise these, and how many tries it takes."""
    left, tries = list(raised), 0

    def step() -> None:
        nonlocal tries
        tries += 1
        if left:
            raise left.pop(0)

    recovery = Recovery(keeper)
    try:
        recovery.run(step)
    except Exception as error:  # noqa: BLE001 - whatever it is, the table names its end
        return recovery.ending(error), tries
    return None, tries


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (LeaseLost(), Ending.LEAVE),
        (ShuttingDown(), Ending.RELEASE),
        (CancelAsked(), Ending.CANCEL),
        (errors.BlobStoreUnavailable("the blob store does not answer"), Ending.RELEASE_LATER),
        (FULL, Ending.RELEASE_LATER),
        (errors.EngineRequestFailed("disk_full", "no space"), Ending.RELEASE_LATER),
        (CRASHED, Ending.FAIL),
        (errors.InvalidModel("no model"), Ending.FAIL),
        (PermissionError(errno.EACCES, "Permission denied"), Ending.FAIL),
        (Canceled(), Ending.FAIL),
        (REFUSED, Ending.RAISE),
    ],
    ids=lambda value: value.name if isinstance(value, Ending) else type(value).__name__,
)
def test_what_ends_an_attempt_ends_it_at_once(error: Exception, ending: Ending) -> None:
    keeper = Keeper()
    assert attempt(keeper, error) == (ending, 1)
    assert not keeper.waited


def test_the_database_is_waited_for_ten_times_in_all() -> None:
    keeper = Keeper()
    assert attempt(keeper, *[AWAY] * 10) == (None, 11)
    assert keeper.waited == 10
    assert attempt(Keeper(), *[AWAY] * 11) == (Ending.RAISE, 11)


def test_a_lease_that_is_overdue_is_had_back_and_one_that_is_lost_is_not() -> None:
    assert attempt(Keeper(is_overdue=True), LeaseLost()) == (None, 2)
    assert attempt(Keeper(is_overdue=True), LeaseLost(), LeaseLost()) == (Ending.LEAVE, 2)


@pytest.mark.parametrize("error", [Canceled(), CRASHED], ids=["canceled", "crashed"])
@pytest.mark.parametrize(
    ("reason", "ending"),
    [(ShuttingDown(), Ending.RELEASE), (CancelAsked(), Ending.CANCEL), (LeaseLost(), Ending.LEAVE)],
)
def test_a_job_that_is_to_stop_ends_for_that_reason(error: Exception, reason: Stopped, ending: Ending) -> None:
    assert attempt(Keeper(reason=reason), error) == (ending, 1)
