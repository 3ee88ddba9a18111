"""A name for every request, in its answer, in problem documents and in every log line about it; and a span."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.types import Message, Receive, Scope, Send

from api.middleware import Middleware
from process import logs, tracing

HEADER = "X-Request-ID"
_NAME = HEADER.lower().encode()
_TRACEPARENT = b"traceparent"
_GOOD = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger(__name__)


class RequestIds(Middleware):
    """The caller's own name is kept where it is short and plain: it goes into logs and headers as it is."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, started = _given(scope) or secrets.token_hex(8), time.monotonic()
        # To the end of the request's own task: what nobody expected is answered and logged outside of this.
        logs.bind(request_id=name)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (_NAME, name.encode())]
                if _log.isEnabledFor(logging.DEBUG):
                    seconds = time.monotonic() - started
                    _log.debug("%s %s: %d after %.3f s", scope["method"], scope["path"], message["status"], seconds)
            await send(message)

        await self._app(scope, receive, named)


def _given(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _NAME and _GOOD.fullmatch(value):
            return str(value.decode())
    return None


class TraceRequests(Middleware):
    """A span for every request, as OpenTelemetry's conventions for HTTP name it. Only there where traces are wanted.

    Goes on with the caller's trace where there is one.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        parent = next((value.decode("latin-1") for name, value in scope["headers"] if name == _TRACEPARENT), None)
        attributes = {"http.request.method": method, "request_id": logs.request_id() or ""}
        with tracing.span(method, attributes, parent=parent, is_request=True) as span:

            async def noticed(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set(status=message["status"])
                    if message["status"] >= 500:
                        span.fail(str(message["status"]))
                await send(message)

            try:
                await self._app(scope, receive, noticed)
            finally:
                # Known by now. Never the path: spans are found by name.
                route = str(getattr(scope.get("route"), "path", "none"))
                span.rename(f"{method} {route}")
                span.set(route=route)
