"""Errors as pages for browsers; everyone else gets the problem document that they are made of."""

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
from api.middleware import Layer
from api.middleware.credentials import COOKIE, LOGIN_PATH
from domain.errors import TunesmithError

Handler = Callable[[Request, Exception], Response | Awaitable[Response]]

_API = ("/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json")
_KEPT = ("retry-after", "allow")


def install(app: FastAPI) -> None:
    """After ``problems.install``, whose answers the pages show."""
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
    # To a browser that brought nothing there is nothing to explain.
    brought = COOKIE in request.cookies or request.url.path == LOGIN_PATH
    page = rendering.page(request, template, status=response.status_code, problem=problem, brought=brought)
    page.headers.update(HEADERS)  # what nobody expected is answered outside of the middleware
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


class SecurityHeaders(Layer):
    """On every response that does not say otherwise itself."""

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, guarded)
