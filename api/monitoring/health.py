"""Routes for liveness and readiness; they need no token."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from api import problems
from api.services import Services, ServicesDep
from domain import errors

router = APIRouter(tags=["health"])
_OK = "ok"


class Health(BaseModel):
    status: str
    version: str


class Readiness(BaseModel):
    status: str
    checks: dict[str, str]


@router.get("/healthz", operation_id="liveness", response_model=Health)
def healthz(request: Request) -> Health:
    """Report that the process is alive."""
    return Health(status="ok", version=request.app.version)


@router.get("/readyz", operation_id="readiness", response_model=Readiness, responses=problems.responses(503))
def readyz(services: ServicesDep) -> Readiness:
    """Check that the service is ready; otherwise the problem's `details.checks` name the failing parts."""
    return Readiness(status="ready", checks=_check(services))


def _check(services: Services) -> dict[str, str]:
    """Return ``ok`` for each check. Raises NotReady with the reasons of failed checks in its details."""
    found = {name: _asked(ask, services) for name, ask in _CHECKS.items()}
    missing = [name for name, state in found.items() if state != _OK]
    if missing:
        raise errors.NotReady(f"not ready: {', '.join(missing)}", details={"checks": found})
    return found


def _asked(ask: Callable[[Services], None], services: Services) -> str:
    try:
        ask(services)
    except errors.TunesmithError as error:
        return error.message
    return _OK


def _database(services: Services) -> None:
    # The messages must not contain host names, as this response is public.
    try:
        services.database.ping()
    except SQLAlchemyError as error:
        raise errors.Unavailable("the database does not respond") from error
    try:
        services.database.check_writable()
    except SQLAlchemyError as error:
        raise errors.Unavailable("the database is locked or does not accept writes") from error
    except OSError as error:
        raise errors.Unavailable(f"cannot write beside the database: {error.strerror}") from error


def _broker(services: Services) -> None:
    try:
        services.publisher.check()
    except errors.BrokerUnavailable as error:
        # The error's message may contain host names, and this response is public.
        raise errors.BrokerUnavailable("the broker does not respond") from error


def _blobs(services: Services) -> None:
    # The reason must not contain host names, as this response is public.
    services.blobs.check()


def _running(services: Services) -> None:
    if services.stopping.is_set():
        raise errors.Unavailable("the server is shutting down")


_CHECKS: dict[str, Callable[[Services], None]] = {
    "database": _database,
    "broker": _broker,
    "blobs": _blobs,
    "server": _running,
}
