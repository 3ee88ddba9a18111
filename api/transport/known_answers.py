"""Answers to requests that came before, byte for byte, given without reading them anew.

Whoever waits for a job asks the same again and again. Reading such a request, finding its route and passing through
every layer takes a millisecond beside a busy search; to see that its bytes are known takes a fiftieth of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.live.kept import Kept
from api.live.status import Status
from api.metrics import Metrics
from api.transport import rate_limit
from api.transport.known_callers import KnownCallers
from api.transport.rate_limit import Buckets
from domain import errors
from domain.tokens import Principal
from storage.tables import digest_of

Again = Callable[[], Status | None]
"""What the route would answer now; None where it would have to look. Raises JobNotFound."""
Header = tuple[bytes, bytes]

REQUEST = "tunesmith.request"
"""Extension of a request's scope: its bytes, when they came in one piece and nothing else did."""
_SECONDS = 600.0
_MOST = 2000
_HARMLESS = {b"accept", b"accept-encoding", b"accept-language", b"authorization", b"host", b"user-agent"}
"""A request with any other header is answered anew: it may ask for something else each time."""
_PERSISTENT = (b"connection", b"keep-alive")
_OF_THE_MOMENT = {b"content-length", b"etag", b"x-request-id"}


@dataclass(frozen=True)
class _Asked:
    caller: Principal
    token: str | None
    """``known_by`` of ``Credentials``."""
    bucket: str
    route: str
    head: bytes
    """Of the answer, but for what changes."""
    again: Again


class KnownAnswers:
    def __init__(self, callers: KnownCallers, buckets: Buckets, metrics: Metrics) -> None:
        self.buckets = buckets
        """Those that ``RateLimit`` takes from as well."""
        self._callers = callers
        self._metrics = metrics
        self._kept: Kept[_Asked] = Kept(most=_MOST)

    def keep(self, request: bytes, asked: _Asked) -> None:
        self._kept.put(_name(request), asked, _SECONDS)

    def answer(self, request: bytes, defaults: Sequence[Header]) -> bytes | None:
        """The whole answer, with ``defaults`` among its headers; None where the request has to be read."""
        started = time.monotonic()
        asked = self._kept.get(_name(request))
        if asked is None or not self._is_still(asked):
            return None
        try:
            status = asked.again()
        except errors.JobNotFound:
            return None
        if status is None or self.buckets.take(asked.bucket):
            return None
        self._metrics.count(method="GET", route=asked.route, status=200, seconds=time.monotonic() - started)
        return b"".join((b"HTTP/1.1 200 OK\r\n", *map(_line, defaults), asked.head, status.end))

    def _is_still(self, asked: _Asked) -> bool:
        return asked.token is None or self._callers.recall(asked.token) == asked.caller


class RememberAnswers:
    """Outside of whatever adds headers. A route that can answer again puts an ``Again`` into the request's state."""

    def __init__(self, app: ASGIApp, known: KnownAnswers) -> None:
        self._app = app
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = scope.get("extensions", {}).get(REQUEST)
        if request is None or not _is_plain(scope):
            await self._app(scope, receive, send)
            return

        async def noticed(message: Message) -> None:
            state = scope.get("state", {})
            if (
                message["type"] == "http.response.start"
                and message["status"] == 200
                and {"again", "known_by"} <= set(state)
            ):
                self._known.keep(request, _asked(scope, message["headers"]))
            await send(message)

        await self._app(scope, receive, noticed)


def _is_plain(scope: Scope) -> bool:
    return (scope["method"], scope["http_version"]) == ("GET", "1.1") and all(
        name in _HARMLESS or (name, value.lower()) == _PERSISTENT for name, value in scope["headers"]
    )


def _asked(scope: Scope, headers: Sequence[Header]) -> _Asked:
    state = scope["state"]
    return _Asked(
        caller=state["caller"],
        token=state["known_by"],
        bucket=rate_limit.key(scope),
        route=scope["route"].path,
        head=b"".join(_line(header) for header in headers if header[0].lower() not in _OF_THE_MOMENT),
        again=state["again"],
    )


def _line(header: Header) -> bytes:
    return b"%s: %s\r\n" % header


def _name(request: bytes) -> str:
    """Requests hold tokens, which nothing keeps as they are."""
    return digest_of(request.decode("latin-1"))
