"""Whether the process lives and whether it can do its work; open to everyone."""

from __future__ import annotations

from fastapi import APIRouter, Request
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from api import problems, schemas
from api.services import ServicesDep
from domain import errors

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="liveness", response_model=schemas.Health)
def healthz(request: Request) -> schemas.Health:
    """Answers as long as the process lives."""
    return schemas.Health(status="ok", version=request.app.version)


@router.get("/readyz", operation_id="readiness", response_model=schemas.Readiness, responses=problems.responses(503))
def readyz(services: ServicesDep) -> schemas.Readiness:
    """Whether the database and the broker answer."""
    try:
        with services.database.reading() as session:
            session.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        raise errors.Unavailable("the database does not answer") from error
    services.publisher.check()
    return schemas.Readiness(status="ready", checks={"database": "ok", "broker": "ok"})
