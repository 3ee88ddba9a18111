"""Work that ends when the client that asked for it leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
from fastapi import Request

T = TypeVar("T")


async def while_connected(request: Request, work: Callable[[Callable[[], bool]], T]) -> T:
    """Run ``work`` in a thread; the function that it is called with says whether the client has left.

    The body of the request must have been read.
    """
    left = threading.Event()

    async def listen() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left.set()

    listening = asyncio.create_task(listen())
    try:
        return await anyio.to_thread.run_sync(lambda: work(left.is_set))
    finally:
        listening.cancel()
