"""Route of the Prometheus metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.monitoring import metrics
from api.services import ServicesDep

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": "tunesmith_workers_alive 2.0\n"}},
        }
    },
)
def read(services: ServicesDep) -> Response:
    """Metrics of queue, jobs, trials, workers, requests and memory; trials are counted from the first scrape."""
    return Response(services.metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})
