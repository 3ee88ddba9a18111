"""All pages, put into the application."""

from __future__ import annotations

from fastapi import FastAPI

from api.dashboard import assets, compare, docs, error_pages, fleet, job, jobs, models, new_job, records
from api.dashboard.crowd import Crowd
from api.dashboard.error_pages import SecurityHeaders
from api.dashboard.job_curves import Convergence
from api.live.recent import Recent

_MOST_JOBS = 100


def install(app: FastAPI) -> None:
    """After the problem documents, which error pages are made of."""
    app.add_middleware(SecurityHeaders)
    app.state.record_overview = records.RecordOverview()
    app.state.crowd = Crowd(least=jobs.LEAST_PAUSE)
    seconds = app.state.services.settings.status_seconds
    app.state.recent_curves = Recent[Convergence](most=_MOST_JOBS, seconds=seconds)
    app.state.recent_parts = Recent[str](most=_MOST_JOBS, seconds=seconds)
    app.include_router(assets.router)
    for page in (new_job, jobs, job, models, compare, records, fleet, docs):
        app.include_router(page.router)
    error_pages.install(app)
