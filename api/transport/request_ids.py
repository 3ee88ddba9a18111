"""A name for every request, in its answer, in problem documents and in every log line about it."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from domain import logs

HEADER = "X-Request-ID"
_NAME = HEADER.lower().encode()
_GOOD = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger(__name__)


class RequestIds:
    """The caller's own name is kept where it is short and plain: it goes into logs and headers as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
