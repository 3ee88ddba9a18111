"""Middleware for ETags and 304 responses to GET requests for JSON, and Cache-Control for all others.

HEAD is supported wherever GET is, except for login links, which a HEAD request would use up.
"""

from __future__ import annotations

import hashlib

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from api.middleware import Middleware
from api.middleware.credentials import LOGIN_PATH

_DIGITS = 32
_JSON = "application/json"
_REVALIDATED = "private, no-cache"
_NO_STORE = "no-store"
"""Default Cache-Control: responses that need a token must not be cached."""
_BODY_HEADERS = ("content-encoding", "content-length", "content-type")


class ConditionalResponses(Middleware):
    """Adds ETags, which are digests of the response bodies as sent, compressed or not."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = ", ".join(Headers(scope=scope).getlist("if-none-match"))
        answer = _ConditionalSend(send, given, wants_tag=scope["method"] == "GET")
        await self._app(scope, receive, answer)


class _ConditionalSend:
    """Delays the start of a JSON response until its body is known."""

    def __init__(self, send: Send, if_none_match: str, *, wants_tag: bool) -> None:
        self._send = send
        self._if_none_match = if_none_match
        self._wants_tag = wants_tag
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if self._wants_tag and _can_be_tagged(message["status"], headers):
                self._start = message
                return
            if "etag" not in headers:
                headers.setdefault("Cache-Control", _NO_STORE)
        elif self._start is not None:
            start, self._start = self._start, None
            if not message.get("more_body", False):
                message = _tagged(start, message, self._if_none_match)
            await self._send(start)
        await self._send(message)


def _can_be_tagged(status: int, headers: Headers) -> bool:
    return status == 200 and headers.get("content-type") == _JSON and "cache-control" not in headers


def _tagged(start: Message, body: Message, if_none_match: str) -> Message:
    headers = MutableHeaders(scope=start)
    etag = etag_of(body["body"])
    headers["ETag"] = etag
    headers["Cache-Control"] = _REVALIDATED
    headers.add_vary_header("Authorization, Cookie")
    if not etag_matches(if_none_match, etag):
        return body
    start["status"] = 304
    for name in _BODY_HEADERS:
        del headers[name]
    return {**body, "body": b""}


def etag_of(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:_DIGITS]}"'


def etag_matches(if_none_match: str, etag: str) -> bool:
    """Compare for If-None-Match, which ignores the weakness prefix W/."""
    listed = [entry.strip().removeprefix("W/") for entry in if_none_match.split(",")]
    return etag in listed or if_none_match.strip() == "*"


_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


class HeadAsGet(Middleware):
    """Runs HEAD requests as GET and ends them after the headers, as streams would not end."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD" or scope["path"] == LOGIN_PATH:
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
