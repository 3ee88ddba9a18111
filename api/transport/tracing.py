"""A span for every request, as OpenTelemetry's conventions for HTTP name it. Only there where traces are wanted."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from domain import logs, tracing

_TRACEPARENT = b"traceparent"


class TraceRequests:
    """Goes on with the caller's trace where there is one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
