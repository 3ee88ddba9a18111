"""Work that ends when the client that asked for it leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
from fastapi import Request

T = TypeVar("T")


class Caller:
    """The client of a request."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._left = threading.Event()
        self._listening: asyncio.Task[None] | None = None

    def has_left(self) -> bool:
        """Return whether the client has left since ``watch``; from any thread."""
        return self._left.is_set()

    def watch(self) -> None:
        """Notice from now on if the client leaves; the body of the request must have been read."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())

    def release(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._left.set()


async def while_connected(request: Request, work: Callable[[Callable[[], bool]], T]) -> T:
    """Run ``work`` in a thread; the function that it is called with says whether the client has left.

    The body of the request must have been read.
    """
    caller = Caller(request)
    caller.watch()
    try:
        return await anyio.to_thread.run_sync(lambda: work(caller.has_left))
    finally:
        caller.release()
