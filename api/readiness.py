"""What the service needs to do its work, asked one by one."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from api.services import Services
from domain import errors

OK = "ok"


def check(services: Services) -> dict[str, str]:
    """``ok`` for each. Raises NotReady, whose details say of each that is not what is wrong with it."""
    found = {name: _asked(ask, services) for name, ask in _CHECKS.items()}
    missing = [name for name, state in found.items() if state != OK]
    if missing:
        raise errors.NotReady(f"not ready: {', '.join(missing)}", details={"checks": found})
    return found


def _asked(ask: Callable[[Services], None], services: Services) -> str:
    try:
        ask(services)
    except errors.TunesmithError as error:
        return error.message
    return OK


def _database(services: Services) -> None:
    try:
        with services.database.reading() as session:
            session.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        raise errors.Unavailable("the database does not answer") from error


def _broker(services: Services) -> None:
    try:
        services.publisher.check()
    except errors.BrokerUnavailable as error:
        # Its message may name hosts, and this answer is for everyone.
        raise errors.BrokerUnavailable("the broker does not answer") from error


def _blobs(services: Services) -> None:
    # What is wrong is said in words that name no host: this answer is for everyone.
    services.blobs.check()


def _running(services: Services) -> None:
    if services.stopping.is_set():
        raise errors.Unavailable("the server is stopping")


_CHECKS: dict[str, Callable[[Services], None]] = {
    "database": _database,
    "broker": _broker,
    "blobs": _blobs,
    "server": _running,
}
