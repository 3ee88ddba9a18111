"""An ETag for every JSON answer to a GET, 304 where the caller has it already, and Cache-Control for all others.

HEAD wherever GET is, with the same headers and no body. Login links apart, which a look would use up.
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
"""What every answer says that says nothing else: no cache may keep what needed a token."""
_OF_A_BODY = ("content-length", "content-type")


class ConditionalResponses(Middleware):
    """The tag is the digest of the answer's own bytes: strong, and nobody can forget to change it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = ", ".join(Headers(scope=scope).getlist("if-none-match"))
        answer = _ConditionalSend(send, given, wants_tag=scope["method"] == "GET")
        await self._app(scope, receive, answer)


class _ConditionalSend:
    """Holds back the start of a JSON answer until its body is known."""

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
    for name in _OF_A_BODY:
        del headers[name]
    return {**body, "body": b""}


def etag_of(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:_DIGITS]}"'


def etag_matches(if_none_match: str, etag: str) -> bool:
    """If-None-Match compares weakly: W/ makes no difference."""
    listed = [entry.strip().removeprefix("W/") for entry in if_none_match.split(",")]
    return etag in listed or if_none_match.strip() == "*"


_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


class HeadAsGet(Middleware):
    """Asks the application for GET and ends it once the headers are known: a stream would go on for nobody."""

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
