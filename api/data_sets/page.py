"""The page of data sets: the list, adding, and deletion."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from api.auth import Reader, Submitter
from api.dashboard import rendering
from api.data_sets import routes
from api.paging import PageTokenParam
from api.services import Services, ServicesDep
from domain import errors
from domain.tokens import Principal, Scope

router = APIRouter(include_in_schema=False)

_PAGE = 50
_SEE_OTHER = 303


@router.get("/data")
def listing(
    request: Request,
    services: ServicesDep,
    principal: Reader,
    page_token: PageTokenParam = None,
    deleted: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """List data sets; ``deleted`` is the name of one just deleted."""
    return _page(request, services, principal, page_token=page_token, deleted=deleted)


@router.post("/data/{data_set}/delete")
def delete(request: Request, services: ServicesDep, principal: Submitter, data_set: str) -> Response:
    name = routes.one(services, principal, data_set).name
    try:
        routes.remove(services, principal, data_set)
    except errors.Conflict as refusal:
        return _page(request, services, principal, refusal=refusal)
    return RedirectResponse("/data?" + urlencode({"deleted": name}), status_code=_SEE_OTHER)


def _page(
    request: Request,
    services: Services,
    principal: Principal,
    *,
    page_token: str | None = None,
    deleted: str = "",
    refusal: errors.Conflict | None = None,
) -> HTMLResponse:
    found = routes.listing(services, principal, limit=_PAGE, page_token=page_token or None)
    return rendering.page(
        request,
        "data_sets.html",
        status=refusal.status if refusal else 200,
        data_sets=found.datasets,
        may_submit=Scope.SUBMIT in principal.scopes,
        most_bytes=services.settings.max_model_bytes,
        shows_owners=principal.sees_all,
        page_token=page_token,
        deleted=deleted,
        refusal=refusal,
        following="?" + urlencode({"page_token": found.next_page_token}) if found.next_page_token else None,
    )
