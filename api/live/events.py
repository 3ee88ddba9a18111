"""A job's events as they come, as a response."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
from fastapi.responses import StreamingResponse
from starlette.types import Send

from api.live.event_hub import Watcher
from api.services import Services

_PING = b": ping\n\n"
_PING_SECONDS = 15.0
"""Proxies end connections on which nothing comes; and only what is sent finds out that a watcher is gone."""
_CHECK_SECONDS = 30.0
"""A watcher's token may be revoked meanwhile."""


class EventStream(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(
        self,
        services: Services,
        job_id: str,
        last_id: int,
        *,
        ping_seconds: float = _PING_SECONDS,
        is_allowed: Callable[[], bool] = lambda: True,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        """Everything after ``last_id``; ends with the job, when the server stops, or soon after ``is_allowed`` does."""
        self._pieces = _checked(_pieces(services, job_id, last_id, ping_seconds), is_allowed, check_seconds)
        # nginx would collect them.
        super().__init__(self._pieces, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            await self._pieces.aclose()


async def _checked(
    pieces: AsyncGenerator[bytes, None], is_allowed: Callable[[], bool], seconds: float
) -> AsyncGenerator[bytes, None]:
    checked = time.monotonic()
    async with aclosing(pieces):
        async for piece in pieces:
            if time.monotonic() - checked >= seconds:
                if not await anyio.to_thread.run_sync(is_allowed):
                    return
                checked = time.monotonic()
            yield piece


async def _pieces(services: Services, job_id: str, last_id: int, ping_seconds: float) -> AsyncGenerator[bytes, None]:
    hub, watcher = services.events, Watcher(job_id, ping_seconds=ping_seconds)
    try:
        hub.join(watcher)
        with services.metrics.watching():
            while True:
                watcher.news.clear()
                piece = hub.after(job_id, last_id)
                is_behind = piece is None
                if piece is None:
                    piece = await anyio.to_thread.run_sync(hub.read, job_id, last_id)
                last_id = piece.last_id
                if piece.content:
                    watcher.told()
                    yield piece.content
                elif is_behind:
                    continue
                elif hub.has_ended(job_id, last_id):
                    return
                elif watcher.is_ping_due:
                    watcher.told()
                    yield _PING
                else:
                    await watcher.news.wait()
    finally:
        watcher.close()
        hub.leave(watcher)
