"""Whether the process lives and whether it can do its work; open to everyone."""

from __future__ import annotations

from fastapi import APIRouter, Request

from api import problems, readiness, schemas
from api.services import ServicesDep

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="liveness", response_model=schemas.Health)
def healthz(request: Request) -> schemas.Health:
    """Answers as long as the process lives."""
    return schemas.Health(status="ok", version=request.app.version)


@router.get("/readyz", operation_id="readiness", response_model=schemas.Readiness, responses=problems.responses(503))
def readyz(services: ServicesDep) -> schemas.Readiness:
    """Whether the service can do its work now; if not, the problem's `details.checks` name what is missing."""
    return schemas.Readiness(status="ready", checks=readiness.check(services))
