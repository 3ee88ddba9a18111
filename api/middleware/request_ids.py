"""Middleware for request ids, in responses, problem documents and log lines, and for tracing."""

from __future__ import annotations

import re
import secrets

from starlette.types import Message, Receive, Scope, Send

from api.middleware import Middleware, route_of
from process import logs, tracing

HEADER = "X-Request-ID"
_NAME = HEADER.lower().encode()
_TRACEPARENT = b"traceparent"
_GOOD = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestIds(Middleware):
    """Sets X-Request-ID; a caller's id is kept if it is short and of safe characters."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = _given(scope) or secrets.token_hex(8)
        # Bound until the end of the request's task, as unexpected errors are handled outside of this middleware.
        logs.bind(request_id=name)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (_NAME, name.encode())]
            await send(message)

        await self._app(scope, receive, named)


def _given(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _NAME and _GOOD.fullmatch(value):
            return str(value.decode())
    return None


class TraceRequests(Middleware):
    """Creates a span for each request according to OpenTelemetry's HTTP conventions; installed if tracing is enabled.

    Continues the caller's trace, if there is one.
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
                # The route is known by now.
                route = route_of(scope)
                span.rename(f"{method} {route}")
                span.set(route=route)
