"""Error pages for browsers, rendered from the problem documents that other clients get."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from api.dashboard import rendering
from api.middleware import Middleware
from api.middleware.credentials import COOKIE, LOGIN_PATH
from domain.errors import TunesmithError

Handler = Callable[[Request, Exception], Response | Awaitable[Response]]

_API = ("/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json")
_KEPT = ("retry-after", "allow")


def install(app: FastAPI) -> None:
    """Install the error pages; call it after ``problems.install``, whose responses they render."""
    for kind in (TunesmithError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _for_browsers(app.exception_handlers[kind]))


def wanted(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(_API)


def _for_browsers(handler: Any) -> Handler:
    async def handle(request: Request, error: Exception) -> Response:
        answer = handler(request, error)
        response: Response = await answer if inspect.isawaitable(answer) else answer
        return _page(request, response) if wanted(request) else response

    return handle


def _page(request: Request, response: Response) -> HTMLResponse:
    problem = json.loads(bytes(response.body))
    template = "login.html" if response.status_code == 401 else "error.html"
    # A browser that sent no credentials needs no explanation of what is wrong with them.
    brought = COOKIE in request.cookies or request.url.path == LOGIN_PATH
    page = rendering.page(request, template, status=response.status_code, problem=problem, brought=brought)
    page.headers.update(HEADERS)  # unexpected errors are answered outside of the middleware
    for name in _KEPT:
        if name in response.headers:
            page.headers[name] = response.headers[name]
    return page


POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class SecurityHeaders(Middleware):
    """Add the security headers to every response that does not set them itself."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, guarded)
