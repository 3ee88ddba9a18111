"""How a browser comes in and leaves: a one-time link, the cookie that it sets, and the end of that session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from api import access_schemas, problems
from api.auth import PrincipalDep
from api.services import ServicesDep
from api.transport import rate_limit
from api.transport.credentials import COOKIE, LOGIN_PATH, own_token
from domain import errors
from storage import browser_sessions

router = APIRouter(tags=["access"])

_COOKIE_SECONDS = 365 * 24 * 3600
"""Longer than any session: when one ends is for the server to say."""
_ONWARD = (
    '<!doctype html><html lang="en"><head><title>Tunesmith</title><meta http-equiv="refresh" content="0; url=/"></head>'
    '<body><a href="/">Go on to Tunesmith</a></body></html>'
)


@router.post(
    "/v1/login-links",
    operation_id="create_login_link",
    status_code=201,
    response_model=access_schemas.LoginLink,
    responses=problems.responses(400, 401, 403, 429, 500),
)
def make_link(request: Request, services: ServicesDep, principal: PrincipalDep) -> access_schemas.LoginLink:
    """An address for a browser that works once, within ten minutes; what it may then do is what the caller may."""
    with services.database.transaction() as session:
        code, expires_at = browser_sessions.make_link(
            session, token_id=principal.token_id, own_token=own_token(services), now=datetime.now(UTC)
        )
    url = f"{str(request.base_url).rstrip('/')}{LOGIN_PATH}?code={quote(code)}"
    return access_schemas.LoginLink(url=url, expires_at=expires_at)


@router.get(
    LOGIN_PATH,
    status_code=303,
    response_class=Response,
    include_in_schema=False,
)
def log_in(
    request: Request, services: ServicesDep, code: Annotated[str, Query(min_length=1, max_length=200)]
) -> Response:
    """Follow a login link. It works once."""
    with services.database.transaction() as session:
        secret = browser_sessions.follow(session, code, own_token=own_token(services), now=datetime.now(UTC))
    if secret is None:
        services.failures.take(rate_limit.address(request.scope))
        raise errors.Unauthorized(
            "the login link was used before, or is older than ten minutes",
            hint="Make a new one: tunesmith login, or POST /v1/login-links.",
        )
    response = _to_dashboard(request)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=_COOKIE_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )
    return response


@router.post(
    "/logout",
    status_code=303,
    response_class=Response,
    include_in_schema=False,
)
def log_out(request: Request, services: ServicesDep) -> Response:
    """End this browser's session; without one there is nothing to end."""
    secret = request.cookies.get(COOKIE)
    if secret:
        with services.database.transaction() as session:
            browser_sessions.end(session, secret, own_token=own_token(services))
    response = RedirectResponse("/", status_code=303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def _to_dashboard(request: Request) -> Response:
    """Followed from a page of another site, such as a mail, a redirect would arrive without the strict cookie."""
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return HTMLResponse(_ONWARD)
    return RedirectResponse("/", status_code=303)
