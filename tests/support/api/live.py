"""The API as a real server on a free port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from api.__main__ import ApiServer
from api.settings import ApiSettings
from tests.support.api.factories import Service
from tests.support.waiting import until


@contextmanager
def serving(service: Service, *, port: int = 0, **settings: Any) -> Iterator[str]:
    """The URL; the server has let go of every stream when this ends."""
    server = ApiServer(service.app, ApiSettings(port=port, token=None, shutdown_seconds=3, **settings))
    thread = threading.Thread(target=server.run, name="api")
    thread.start()
    try:
        until(lambda: server.started, seconds=20)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()
