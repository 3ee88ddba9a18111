"""Installation of all pages into the application."""

from __future__ import annotations

from fastapi import FastAPI

from api.dashboard import assets, error_pages
from api.dashboard.error_pages import SecurityHeaders
from api.data_sets import page as data_sets
from api.documentation import page as docs
from api.fleet import page as fleet
from api.jobs.pages import compare, job, listing, new_job
from api.jobs.pages.convergence import Convergence
from api.jobs.pages.poll_interval import PollInterval
from api.models import page as models
from api.records import page as records
from api.response_cache import TTLCache

_MOST_JOBS = 100


def install(app: FastAPI) -> None:
    """Install the pages; call it after ``problems.install``, as error pages render problem documents."""
    app.add_middleware(SecurityHeaders)
    app.state.record_overview = records.RecordOverview()
    app.state.poll_interval = PollInterval(least=listing.LEAST_PAUSE)
    seconds = app.state.services.settings.status_seconds
    app.state.curve_cache = TTLCache[Convergence](most=_MOST_JOBS, seconds=seconds)
    app.state.fragment_cache = TTLCache[str](most=_MOST_JOBS, seconds=seconds)
    app.include_router(assets.router)
    for page in (new_job, listing, job, models, data_sets, compare, records, fleet, docs):
        app.include_router(page.router)
    error_pages.install(app)
