"""Middleware: processing of all requests and responses before and after their routes."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class Middleware:
    """Base of middleware for HTTP requests; other ASGI events are passed on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.handle if scope["type"] == "http" else self._app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request, by calling the application or responding directly."""
        raise NotImplementedError


def route_of(scope: Scope) -> str:
    """Return the route's template, never the path, which would let callers create any number of names."""
    return str(getattr(scope.get("route"), "path", "none"))
