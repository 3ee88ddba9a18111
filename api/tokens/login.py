"""Login of browsers: one-time links, session cookies and logout."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from api import problems
from api.auth import PrincipalDep
from api.middleware.credentials import COOKIE, LOGIN_PATH, count_failure, own_token, refuse_cross_site
from api.services import Services, ServicesDep
from api.tokens import schemas
from domain import errors
from storage import browser_sessions

router = APIRouter(tags=["access"])

CodeParam = Annotated[str, Query(min_length=1, max_length=200)]
_COOKIE_SECONDS = 365 * 24 * 3600
"""Longer than any session; the server decides when a session ends."""
_CONFIRM = (
    '<!doctype html><html lang="en"><head><title>Tunesmith</title></head><body>'
    '<form method="post" action="{action}"><button>Sign in to Tunesmith</button></form></body></html>'
)


@router.post(
    "/v1/login-links",
    operation_id="create_login_link",
    status_code=201,
    response_model=schemas.LoginLink,
    responses=problems.responses(400, 401, 403, 429, 500),
)
def make_link(request: Request, services: ServicesDep, principal: PrincipalDep) -> schemas.LoginLink:
    """Create a login link for a browser: it works once, within ten minutes, and gives the caller's rights."""
    with services.database.transaction() as session:
        code, expires_at = browser_sessions.make_link(
            session, token_id=principal.token_id, own_token=own_token(services), now=datetime.now(UTC)
        )
    url = f"{str(request.base_url).rstrip('/')}{LOGIN_PATH}?code={quote(code)}"
    return schemas.LoginLink(url=url, expires_at=expires_at)


@router.get(
    LOGIN_PATH,
    status_code=303,
    response_class=Response,
    include_in_schema=False,
)
def show_link(request: Request, services: ServicesDep, code: CodeParam) -> Response:
    """Follow a login link, which works once. If another site leads here, the user has to confirm.

    Otherwise, a site could sign users in as somebody else, to whom they would then disclose their data.
    """
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return HTMLResponse(_CONFIRM.format(action=escape(f"{LOGIN_PATH}?code={quote(code)}")))
    return _follow(request, services, code)


@router.post(
    LOGIN_PATH,
    status_code=303,
    response_class=Response,
    include_in_schema=False,
)
def log_in(request: Request, services: ServicesDep, code: CodeParam) -> Response:
    """Log in after the confirmation on the page of ``show_link``."""
    refuse_cross_site(request, required=True)
    return _follow(request, services, code)


def _follow(request: Request, services: Services, code: str) -> Response:
    with services.database.transaction() as session:
        secret = browser_sessions.follow(session, code, own_token=own_token(services), now=datetime.now(UTC))
    if secret is None:
        count_failure(services, request)
        raise errors.Unauthorized(
            "the login link was already used, or is older than ten minutes",
            hint="Create a new link: tunesmith login, or POST /v1/login-links.",
        )
    response = RedirectResponse("/", status_code=303)
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
    """End this browser's session, if there is one."""
    secret = request.cookies.get(COOKIE)
    if secret:
        with services.database.transaction() as session:
            browser_sessions.end(session, secret, own_token=own_token(services))
    response = RedirectResponse("/", status_code=303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response
