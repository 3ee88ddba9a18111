"""Refuse addresses that hold a NUL: no name has one, and PostgreSQL takes none, so it would fail further inside."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems


class PlainAddresses:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ("\0" in scope["path"] or b"%00" in scope["query_string"]):
            error = HTTPException(400, "the address holds a NUL character")
            await problems.http_error(Request(scope), error)(scope, receive, send)
            return
        await self._app(scope, receive, send)
