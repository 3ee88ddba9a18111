"""Going on with a job after its database was away: where it stood, by the same worker, for nothing that it has paid."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from worker.leases import LeaseLost

_OUTAGES = 10
"""That one attempt rides out: what fails time after time may be no outage, and attempts are counted."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Keeper(Protocol):
    """Of a job, or of a round of its trials."""

    @property
    def job_id(self) -> str: ...

    @property
    def is_overdue(self) -> bool:
        """Whether the lease ran out because the database was away, and may be had back."""
        ...

    def wait_for_database(self) -> None:
        """Until it answers and has renewed the lease. Raises LeaseLost when it would not, and ShuttingDown."""
        ...


def outlast(keeper: Keeper, work: Callable[[], T]) -> T:
    """Do the work; again, from what is stored, when the database was away and the job is still ours afterwards.

    Trials that were finished meanwhile are in a journal on this host: another worker would pay for them once more.
    Raises whatever else the work does.
    """
    for _ in range(_OUTAGES):
        try:
            return work()
        except LeaseLost:
            if not keeper.is_overdue:
                raise
            _log.warning("job %s: the lease could not be renewed in time; waiting for the database", keeper.job_id)
        except SQLAlchemyError as error:
            if not is_outage(error):
                raise
            _log.warning("job %s: the database went away; waiting for it", keeper.job_id, exc_info=True)
        keeper.wait_for_database()
        _log.warning("job %s: the database is back; going on", keeper.job_id)
    return work()


def is_outage(error: SQLAlchemyError) -> bool:
    """Whether the database was away, or would not take a turn; anything else is a fault of ours."""
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return lost or isinstance(error, OperationalError | InterfaceError | PoolTimeout)
