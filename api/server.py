"""uvicorn, which ends open streams of events when it is told to stop."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from api.settings import ApiSettings


class ApiServer(uvicorn.Server):
    """uvicorn waits for open responses before it tells the application that it stops, and a stream of events would
    never end by then; so the streams are told first."""

    def __init__(self, app: FastAPI, settings: ApiSettings) -> None:
        self._services = app.state.services
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            # The root logger writes what uvicorn logs, as the settings have it.
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            http="h11",
            ws="none",
            h11_max_incomplete_event_size=settings.header_bytes,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._services.stopping.set()
        self._services.events.wake()
        await super().shutdown(sockets)
