"""Middleware that rejects oversized bodies and invalid URLs before reading the request."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from api import problems
from api.middleware import Middleware

MOST_BYTES = 1024 * 1024
_MOST_DIGITS = 18
_UPLOADS = ("/v1/records", "/v1/datasets")
"""Paths whose POST bodies are streamed."""


class BodyLimit(Middleware):
    """Limits the size of bodies, except of uploads, which have limits of their own."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "PUT" or scope["path"] in _UPLOADS:
            await self._app(scope, receive, send)
            return
        if announced(Headers(scope=scope)) > MOST_BYTES:
            response = problems.http_error(Request(scope), _too_large())
            await response(scope, receive, send)
            return
        left = MOST_BYTES

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise _too_large()
            return message

        await self._app(scope, counted, send)


def announced(headers: Headers) -> int:
    """Return Content-Length; 0 if invalid. Of a very long number only the first digits, which exceed any limit."""
    text = headers.get("content-length", "")[:_MOST_DIGITS]
    return int(text) if text.isascii() and text.isdecimal() else 0


def _too_large() -> HTTPException:
    return HTTPException(413, f"the request body exceeds {MOST_BYTES} bytes")


class RejectNulCharacters(Middleware):
    """Rejects NUL in URLs: no name contains it, and PostgreSQL cannot store it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            error = HTTPException(400, "the URL contains a NUL character")
            await problems.http_error(Request(scope), error)(scope, receive, send)
            return
        await self._app(scope, receive, send)
