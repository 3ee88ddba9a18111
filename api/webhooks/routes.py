"""Routes of the deliveries of a job's webhook."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter

from api import problems
from api.auth import Reader, Submitter
from api.services import ServicesDep
from api.webhooks import schemas
from storage import owners, webhooks

router = APIRouter(prefix="/v1/jobs", tags=["webhooks"])


@router.get(
    "/{job_id}/deliveries",
    operation_id="list_deliveries",
    response_model=schemas.Deliveries,
    responses=problems.responses(404),
)
def listing(services: ServicesDep, principal: Reader, job_id: str) -> schemas.Deliveries:
    """Get the job's webhook and, once the job has ended, the state of the message."""
    with services.database.reading() as session:
        owners.job(session, job_id, principal)
        return schemas.deliveries(webhooks.of_job(session, job_id), webhooks.deliveries(session, job_id))


@router.post(
    "/{job_id}/deliveries:resend",
    operation_id="resend_deliveries",
    status_code=202,
    response_model=schemas.Deliveries,
    responses=problems.responses(404, 409),
)
def resend(services: ServicesDep, principal: Submitter, job_id: str) -> schemas.Deliveries:
    """Send the webhook message again, with the same webhook-id, whatever its state."""
    with services.database.transaction() as session:
        owners.job(session, job_id, principal)
        again = webhooks.resend(session, job_id, now=datetime.now(UTC))
        return schemas.deliveries(webhooks.of_job(session, job_id), again)
