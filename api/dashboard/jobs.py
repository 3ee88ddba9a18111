"""The page of all jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from api import auth
from api.dashboard import rendering
from api.paging import PageTokenParam
from api.routes import jobs
from api.services import ServicesDep
from domain.jobs import JobState

router = APIRouter(include_in_schema=False)

_PAGE = 50


@router.get("/")
def listing(
    request: Request,
    services: ServicesDep,
    principal: auth.Reader,
    state: Annotated[JobState | None, Query()] = None,
    page_token: PageTokenParam = None,
) -> HTMLResponse:
    found = jobs.listing(services, principal, state=state, limit=_PAGE, page_token=page_token)
    return rendering.page(request, "jobs.html", jobs=found.jobs, following=found.next_page_token)
