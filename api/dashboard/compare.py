"""The page that puts jobs, or one model's builds by several toolchains, side by side."""

from __future__ import annotations

import string
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from api.auth import Reader
from api.dashboard import comparing, devices, rendering, sides
from api.dashboard.sides import Side
from api.services import Services, ServicesDep
from domain import errors
from domain.jobs import JobState
from domain.tokens import Principal
from storage import jobs, owners, summaries

router = APIRouter(include_in_schema=False)

_MOST_SIDES = 6
_OFFERED = 40
_Ids = Annotated[list[Annotated[str, Query(max_length=200)]], Query(max_length=100)]


@router.get("/compare")
def compare(
    request: Request,
    services: ServicesDep,
    principal: Reader,
    job: _Ids = [],  # noqa: B006 - FastAPI copies it
    artifact: _Ids = [],  # noqa: B006 - likewise
    model: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Of fewer than two sides, what there is to choose from; ``model`` narrows that."""
    wanted = list(dict.fromkeys([*(("job", one) for one in job), *(("artifact", one) for one in artifact)]))
    if len(wanted) > _MOST_SIDES:
        raise errors.InvalidRequest(
            f"{len(wanted)} sides are more than a page can compare", hint=f"Choose up to {_MOST_SIDES}."
        )
    with services.database.reading() as session:
        found = [
            sides.of_job(session, one, principal) if name == "job" else sides.of_artifact(session, one, principal)
            for name, one in wanted
        ]
        placed = [side.job.placement.device for side in found if side.job and side.job.placement]
        device_name = devices.names(session, *placed)
    if len(found) < 2:
        return _chooser(request, services, principal, found, model)
    letters = string.ascii_uppercase
    return rendering.page(
        request,
        "compare.html",
        sides=found,
        letters=letters,
        doubts=comparing.doubts(found, letters),
        timings=comparing.timings(found),
        scale=comparing.scale(found),
        options=comparing.options(found),
        tasks=comparing.tasks(found),
        builds=comparing.builds(found),
        addresses=[_first(found, side) for side in found],
        without=[_address([other for other in found if other is not side]) for side in found],
        device_name=device_name,
    )


def _chooser(
    request: Request, services: Services, principal: Principal, chosen: list[Side], model: str
) -> HTMLResponse:
    """Jobs that published something; with one side chosen, those of its model."""
    wanted = model or (chosen[0].model.id if chosen else "")
    with services.database.reading() as session:
        of = owners.model(session, wanted, principal) if wanted else None
        found, _ = jobs.page(
            session,
            owner=owners.visible(principal),
            state=JobState.SUCCEEDED,
            model_digest=of.digest if of else None,
            limit=_OFFERED,
        )
        names = summaries.model_names(session, [job.request.model_digest for job in found])
        gains = summaries.gains(session, [job.artifact_id for job in found if job.artifact_id])
    return rendering.page(
        request,
        "compare_choose.html",
        jobs=found,
        names=names,
        gains=gains,
        model=of,
        chosen={side.id for side in chosen},
        most=_MOST_SIDES,
    )


def _first(found: list[Side], side: Side) -> str:
    """Of the same comparison, against another side."""
    return _address([side, *(other for other in found if other is not side)])


def _address(wanted: list[Side]) -> str:
    return "/compare?" + urlencode([(side.name, side.id) for side in wanted])
