"""HEAD wherever GET is: the same headers, and no body. Login links apart, which a look would use up."""

from __future__ import annotations

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.transport.credentials import LOGIN_PATH

_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


class HeadAsGet:
    """Asks the application for GET and ends it once the headers are known: a stream would go on for nobody."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or scope["path"] == LOGIN_PATH:
            await self._app(scope, receive, send)
            return
        scope["method"] = "GET"
        with anyio.CancelScope() as running:
            ended = False

            async def headers_only(message: Message) -> None:
                nonlocal ended
                if message["type"] == "http.response.start":
                    await send(message)
                    if "content-length" in Headers(raw=message["headers"]):
                        return
                if not ended:
                    ended = True
                    await send(_END)
                    if message.get("more_body", message["type"] == "http.response.start"):
                        running.cancel()

            await self._app(scope, receive, headers_only)
