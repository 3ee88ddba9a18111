"""The page of the fleet: who works here, on what, with which tools, and which devices are left alone for now."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from api.auth import Reader
from api.dashboard import rendering
from api.fleet import routes, schemas
from api.services import Services, ServicesDep
from domain import errors
from domain.jobs import Job
from storage import jobs, model_overviews

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, kw_only=True)
class WorkerJobs:
    """What a worker does, of a job that the visitor may see."""

    job: Job
    model_name: str


@router.get("/fleet")
def now(request: Request, services: ServicesDep, principal: Reader) -> HTMLResponse:
    """The whole page; for htmx, which asks again and again, what changes of it."""
    known = routes.list_workers(services, principal)
    workers = known.workers
    devices = routes.list_devices(services, principal)
    return rendering.page(
        request,
        "fleet_now.html" if rendering.is_fragment(request) else "fleet.html",
        workers=sorted(workers, key=lambda worker: not worker.alive),
        work=_work(services, workers),
        warnings=known.warnings,
        devices=devices.devices,
        quarantined=devices.quarantined,
        engines=routes.list_engines(services, principal).engines,
        alive_seconds=services.settings.worker_alive_seconds,
    )


def _work(services: Services, workers: list[schemas.Worker]) -> dict[str, WorkerJobs]:
    """By job id, of the jobs that the workers' descriptions name."""
    found: dict[str, Job] = {}
    with services.database.reading() as session:
        for worker in workers:
            if worker.current_job:
                try:
                    found[worker.current_job] = jobs.get(session, worker.current_job)
                except errors.JobNotFound:
                    continue
        names = model_overviews.model_names(session, [job.request.model_digest for job in found.values()])
    return {
        job_id: WorkerJobs(job=job, model_name=names[job.request.model_digest].name) for job_id, job in found.items()
    }
