"""An ETag for every JSON answer to a GET, 304 where the caller has it already, and Cache-Control for all others."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.transport import etags

_JSON = "application/json"
_REVALIDATED = "private, no-cache"
_KEPT_NOWHERE = "no-store"
"""What every answer says that says nothing else: no cache may keep what needed a token."""
_OF_A_BODY = ("content-length", "content-type")


class ConditionalAnswers:
    """The tag is the digest of the answer's own bytes: strong, and nobody can forget to change it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = ", ".join(Headers(scope=scope).getlist("if-none-match"))
        answer = _Answer(send, given, wants_tag=scope["method"] == "GET")
        await self._app(scope, receive, answer)


class _Answer:
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
                headers.setdefault("Cache-Control", _KEPT_NOWHERE)
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
    etag = etags.of(body["body"])
    headers["ETag"] = etag
    headers["Cache-Control"] = _REVALIDATED
    headers.add_vary_header("Authorization, Cookie")
    if not etags.matches(if_none_match, etag):
        return body
    start["status"] = 304
    for name in _OF_A_BODY:
        del headers[name]
    return {**body, "body": b""}
