"""The page of all jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, BeforeValidator, Field

from api import auth
from api.dashboard import rendering
from api.jobs import placing, queueing
from api.jobs.pages import job_progress
from api.jobs.pages.job_progress import JobProgress
from api.jobs.pages.poll_interval import PollInterval
from api.jobs.queueing import QueuePlace
from api.jobs.routes import living_workers, parse_label
from api.services import Services, ServicesDep
from domain.jobs import Job, JobState
from domain.tokens import Principal
from storage import jobs, model_overviews, owners, quotas, statements
from storage.model_overviews import Gain, ModelName

router = APIRouter(include_in_schema=False)

_PAGE = 50
_UNCHANGED = 204
LEAST_PAUSE = 4.0
"""Minimum polling interval of a browser in seconds, while a job is not finished."""
_IDLE_PAUSE = 20.0

_Given = BeforeValidator(lambda value: value or None)
"""Forms send empty fields that were not filled in."""
_Text = Annotated[Annotated[str, Field(max_length=200)] | None, _Given]


class ListingFilter(BaseModel):
    """Query parameters of the page."""

    text: _Text = None
    state: Annotated[JobState | None, _Given] = None
    model: _Text = None
    label: Annotated[Annotated[str, Field(max_length=500)] | None, _Given] = None
    group: _Text = None
    page_token: Annotated[Annotated[str, Field(max_length=500)] | None, _Given] = None
    seen: _Text = None
    """Digest of the list that the browser shows."""

    @property
    def has_details(self) -> bool:
        return bool(self.model or self.label or self.group)

    @property
    def is_set(self) -> bool:
        return bool(self.text or self.state or self.has_details)

    def address(self, **changes: str | None) -> str:
        """Return the address of the page with this filter and ``changes``."""
        given = self.model_dump(mode="json", exclude={"seen", "page_token"}, exclude_none=True) | changes
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/?{query}" if query else "/"


@dataclass(frozen=True, kw_only=True)
class JobLine:
    job: Job
    model: ModelName
    gain: Gain | None
    waits_for: str | None
    place: QueuePlace | None
    """None unless the job waits for its turn alone."""
    progress: JobProgress | None
    """None unless the job is running."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    lines: list[JobLine]
    following: str | None
    digest: str
    """Digest of everything that a browser shows, except ages."""

    @property
    def is_lively(self) -> bool:
        return any(not line.job.state.is_final for line in self.lines)


@router.get("/")
def listing(
    request: Request, services: ServicesDep, principal: auth.Reader, wanted: Annotated[ListingFilter, Query()]
) -> Response:
    """Return the page; for htmx only the list, or 204 if the browser already shows it."""
    found = find(services, principal, wanted)
    interval: PollInterval = request.app.state.poll_interval
    pause = interval.poll() if wanted.seen else LEAST_PAUSE
    if wanted.seen == found.digest:
        return Response(status_code=_UNCHANGED)
    return _page(request, wanted, found, max(pause, LEAST_PAUSE if found.is_lively else _IDLE_PAUSE))


def _page(request: Request, wanted: ListingFilter, found: Listing, pause: float) -> HTMLResponse:
    template = "jobs_list.html" if rendering.is_fragment(request) else "jobs.html"
    return rendering.page(request, template, filter=wanted, found=found, states=list(JobState), pause=round(pause))


def find(services: Services, principal: Principal, wanted: ListingFilter) -> Listing:
    """Query a page of jobs. Raises ModelNotFound, InvalidPageToken, and InvalidRequest for an invalid label."""
    with services.database.reading() as session:
        found, following = jobs.page(
            session,
            owner=owners.visible(principal),
            state=wanted.state,
            model_digest=owners.model(session, wanted.model, principal).digest if wanted.model else None,
            label=parse_label(wanted.label) if wanted.label else None,
            group=wanted.group,
            text=wanted.text,
            limit=_PAGE,
            page_token=wanted.page_token,
        )
        names = model_overviews.model_names(session, [job.request.model_digest for job in found])
        gains = model_overviews.gains(session, [job.artifact_id for job in found if job.artifact_id])
        living = living_workers(services, session)
        held = quotas.held(session, [job.id for job in found])
        progress = job_progress.of_jobs(session, found)
        places = queueing.places(session, found, living, held, now=statements.now(session))
    lines = [
        JobLine(
            job=job,
            model=names[job.request.model_digest],
            gain=gains.get(job.artifact_id or ""),
            waits_for=placing.waits_for(job, living, held),
            place=places.get(job.id),
            progress=progress.get(job.id),
        )
        for job in found
    ]
    return Listing(lines=lines, following=following, digest=_digest(lines, following))


def _digest(lines: Sequence[JobLine], following: str | None) -> str:
    shown = [
        (
            line.job.id,
            line.job.state,
            line.job.stage,
            line.job.trials_done,
            line.progress,
            line.waits_for,
            line.place and line.place.position,
        )
        for line in lines
    ]
    return hashlib.sha256(repr((shown, following)).encode()).hexdigest()[:16]
