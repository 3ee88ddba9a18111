"""What happens to every request and response before and after its route."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class Middleware:
    """A middleware of HTTP requests; whatever else the server tells the application passes by."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.handle if scope["type"] == "http" else self._app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, by what is behind this layer or instead of it."""
        raise NotImplementedError
