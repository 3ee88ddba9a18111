"""Give up on a request whose body comes too slowly: each holds a thread, and uploads have few."""

from __future__ import annotations

import time

import anyio
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LEAST_BYTES_A_SECOND = 1000


class SlowBodies:
    """``seconds`` may be spent waiting, and each thousand bytes win one back: a trickle is as bad as a pause."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(scope, _Timed(receive, self._seconds), send)


class _Timed:
    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive = receive
        self._most = self._left = seconds
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            # Whoever asks now waits for the caller to hang up, as long as the answer takes.
            return await self._receive()
        started = time.monotonic()
        try:
            with anyio.fail_after(max(self._left, 0)):
                message = await self._receive()
        except TimeoutError:
            detail = "the request's body came too slowly"
            raise HTTPException(408, detail, headers={"Connection": "close"}) from None
        earned = len(message.get("body", b"")) / _LEAST_BYTES_A_SECOND
        self._left = min(self._most, self._left - (time.monotonic() - started) + earned)
        self._complete = not message.get("more_body", False)
        return message
