"""A job's events as they come, as a response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial

import anyio
from fastapi.responses import StreamingResponse
from starlette.types import Send

from api.live.event_hub import Watcher, WriteChunk
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
        write_chunk: WriteChunk | None = None,
    ) -> None:
        """Everything after ``last_id``; ends with the job, when the server stops, or soon after ``is_allowed`` does."""
        make = partial(Watcher, job_id, last_id, ping_seconds=ping_seconds, write_chunk=write_chunk)
        self._pieces = _checked(services, make, is_allowed, check_seconds)
        # nginx would collect them.
        super().__init__(self._pieces, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            await self._pieces.aclose()


async def _checked(
    services: Services, make: Callable[[], Watcher], is_allowed: Callable[[], bool], seconds: float
) -> AsyncGenerator[bytes, None]:
    # Made here, where the loop runs.
    watcher = make()
    watcher.direct_until = watcher.loop.time() + seconds
    async with aclosing(_pieces(services, watcher)) as pieces:
        async for piece in pieces:
            if watcher.loop.time() >= watcher.direct_until:
                if not await anyio.to_thread.run_sync(is_allowed):
                    return
                watcher.direct_until = watcher.loop.time() + seconds
            yield piece


async def _pieces(services: Services, watcher: Watcher) -> AsyncGenerator[bytes, None]:
    hub, job_id = services.events, watcher.job_id
    try:
        hub.join(watcher)
        with services.metrics.watching():
            while True:
                watcher.news.clear()
                piece = hub.after(job_id, watcher.last_id)
                is_behind = piece is None
                if piece is None:
                    piece = await anyio.to_thread.run_sync(hub.read, job_id, watcher.last_id)
                watcher.last_id = piece.last_id
                if piece.content:
                    watcher.told()
                    yield piece.content
                elif is_behind:
                    continue
                elif hub.has_ended(job_id, watcher.last_id):
                    return
                elif watcher.is_ping_due:
                    watcher.told()
                    yield _PING
                else:
                    await watcher.wait()
    finally:
        watcher.close()
        hub.leave(watcher)
