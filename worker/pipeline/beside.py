"""Requests to several engines side by side: each keeps one core busy, and none of them measures anything."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Made = TypeVar("Made")


@contextmanager
def started(calls: Mapping[str, Callable[[], Made]]) -> Iterator[dict[str, Future[Made]]]:
    """Start the calls, in a thread each, and end the block when all are done.

    If the block raises, requests of the calls still end with the job or by their time limits.
    """
    with ThreadPoolExecutor(max(1, len(calls)), thread_name_prefix="beside") as executor:
        yield {name: executor.submit(contextvars.copy_context().run, call) for name, call in calls.items()}
