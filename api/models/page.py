"""The list of models, and the page of a model with its builds, jobs and deletion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from api.auth import Reader, Submitter
from api.dashboard import rendering
from api.fleet import device_names
from api.models import routes
from api.paging import PageTokenParam
from api.services import Services, ServicesDep
from domain import errors
from domain.artifacts import Artifact, Timing
from domain.jobs import Job
from domain.tokens import Principal, Scope
from storage import deletion, jobs, model_overviews, owners
from storage.model_overviews import Gain

router = APIRouter(include_in_schema=False)

_PAGE = 50
_JOBS = 10
_SEE_OTHER = 303
_Id = Annotated[str, Query(pattern=r"^(m-[0-9a-z]{1,64})?$")]


@dataclass(frozen=True, kw_only=True)
class ModelBuild:
    """An artifact and its job."""

    artifact: Artifact
    job: str | None
    """None for a job of another owner."""

    @property
    def timing(self) -> Timing:
        return self.artifact.report.timings[self.artifact.report.published]


@dataclass(frozen=True, kw_only=True)
class BuildPlace:
    """The fastest builds of each toolchain for one target, device, precision and shapes, fastest first."""

    builds: list[ModelBuild]

    @property
    def best(self) -> ModelBuild:
        return self.builds[0]

    @property
    def comparison(self) -> str | None:
        """Address of the comparison of the toolchains; None with a single one."""
        if len(self.builds) < 2:
            return None
        return "/compare?" + urlencode([("artifact", build.artifact.id) for build in self.builds])


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    job: Job
    gain: Gain | None


@router.get("/models")
def listing(
    request: Request,
    services: ServicesDep,
    principal: Reader,
    name: Annotated[str, Query(max_length=200)] = "",
    page_token: PageTokenParam = None,
    deleted: _Id = "",
    left: _Id = "",
) -> HTMLResponse:
    """List models; ``deleted`` and ``left`` are the id of a model just deleted, or kept for its other owners."""
    found = routes.listing(services, principal, name=name or None, limit=_PAGE, page_token=page_token or None)
    with services.database.reading() as session:
        digests = [model.digest for model in found.models]
        overviews = model_overviews.of_models(session, digests, owner=owners.visible(principal))
        device_name = device_names.names(session)
    following = {"name": name, "page_token": found.next_page_token}
    return rendering.page(
        request,
        "models.html",
        models=found.models,
        overviews=overviews,
        device_name=device_name,
        name=name,
        page_token=page_token,
        deleted=deleted,
        left=left,
        following="?" + urlencode(following) if found.next_page_token else None,
    )


@router.get("/models/{model}")
def one(request: Request, services: ServicesDep, principal: Reader, model: str) -> HTMLResponse:
    return _page(request, services, principal, model)


@router.get("/models/{model}/delete")
def ask(request: Request, services: ServicesDep, principal: Submitter, model: str) -> HTMLResponse:
    """Show the page of the model with the deletion form open; also the target of a reload after a refusal."""
    return _page(request, services, principal, model, asking=True)


@router.post("/models/{model}/delete")
def delete(request: Request, services: ServicesDep, principal: Submitter, model: str) -> Response:
    try:
        done = routes.remove(services, principal, model)
    except errors.Conflict as refusal:
        return _page(request, services, principal, model, asking=True, refusal=refusal)
    return RedirectResponse(f"/models?{'deleted' if done.gone else 'left'}={done.id}", status_code=_SEE_OTHER)


def _page(
    request: Request,
    services: Services,
    principal: Principal,
    model: str,
    *,
    asking: bool = False,
    refusal: errors.Conflict | None = None,
) -> HTMLResponse:
    """Render the page of a model; with ``asking``, the deletion form is open."""
    found = routes.one(services, principal, model)
    with services.database.reading() as session:
        builds = model_overviews.fastest(session, found.digest)
        own = owners.jobs_of(session, {build.job_id for build in builds}, principal)
        recent, more = jobs.page(
            session, owner=owners.visible(principal), model_digest=found.digest, limit=_JOBS, page_token=None
        )
        gains = model_overviews.gains(session, [job.artifact_id for job in recent if job.artifact_id])
        prospect = deletion.foresee(session, found.digest, owner=owners.visible(principal))
        device_name = device_names.names(session)
    return rendering.page(
        request,
        "model.html",
        status=refusal.status if refusal else 200,
        model=found,
        operators=sorted(found.operators.items(), key=lambda entry: (-entry[1], entry[0])),
        places=_places([ModelBuild(artifact=one, job=one.job_id if one.job_id in own else None) for one in builds]),
        device_name=device_name,
        lines=[ModelLine(job=job, gain=gains.get(job.artifact_id or "")) for job in recent],
        has_more_jobs=more is not None,
        prospect=prospect if Scope.SUBMIT in principal.scopes else None,
        asking=asking,
        refusal=refusal,
    )


def _places(builds: Sequence[ModelBuild]) -> list[BuildPlace]:
    """Group builds by target, device, precision and shapes, in the order of their fastest builds."""
    found: dict[tuple[str, ...], list[ModelBuild]] = {}
    for build in builds:
        made = build.artifact
        shapes = json.dumps([made.input_shapes, *(size.input_shapes for size in made.sizes)], sort_keys=True)
        found.setdefault((made.target, made.device_key, made.precision, shapes), []).append(build)
    return [BuildPlace(builds=together) for together in found.values()]
