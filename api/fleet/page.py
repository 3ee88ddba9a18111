"""The page of the fleet: workers, devices, engines and devices in quarantine."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from api.auth import Reader
from api.dashboard import rendering
from api.fleet import routes, schemas
from api.jobs.pages import job_progress
from api.jobs.pages.job_progress import JobProgress
from api.services import Services, ServicesDep
from domain import errors
from domain.jobs import Job
from storage import jobs, model_overviews

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, kw_only=True)
class WorkerJobs:
    """The current job of a worker, if the caller may see it."""

    job: Job
    model_name: str
    progress: JobProgress | None
    """None unless the job is running."""


@router.get("/fleet")
def now(request: Request, services: ServicesDep, principal: Reader) -> HTMLResponse:
    """Return the page; for htmx, which polls, only the part that changes."""
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
    """Return the current jobs of the workers by job id."""
    found: dict[str, Job] = {}
    with services.database.reading() as session:
        for worker in workers:
            if worker.current_job:
                try:
                    found[worker.current_job] = jobs.get(session, worker.current_job)
                except errors.JobNotFound:
                    continue
        names = model_overviews.model_names(session, [job.request.model_digest for job in found.values()])
        progress = job_progress.of_jobs(session, list(found.values()))
    return {
        job_id: WorkerJobs(job=job, model_name=names[job.request.model_digest].name, progress=progress.get(job_id))
        for job_id, job in found.items()
    }
