"""Event streams of jobs, with one database query for all watchers.

While there are watchers, one task reads the new events of all watched jobs and wakes the watchers. A watcher is a
position in the events of a job. It reads from memory, or from the database if it is further behind, so a slow watcher
delays nobody and misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from operator import itemgetter

import anyio
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy.exc import SQLAlchemyError

from domain.jobs import JobEvent
from storage import events
from storage.database import Database

logger = logging.getLogger(__name__)

_KEEP = 500
_BATCH = 1000
_PAUSE_AFTER_TROUBLE = 2.0
_CHECK_SECONDS = 30.0
"""A watcher's token may be revoked while it watches."""
_COMMENT_SECONDS = 15.0
"""Proxies close idle connections; a comment also detects disconnected watchers."""


class _Feed:
    """The newest events of one job, between ``floor`` and ``head``; older ones are read from the database."""

    def __init__(self, last_id: int, keep: int) -> None:
        self._keep = keep
        self._events: list[tuple[int, bytes]] = []
        self.floor = self.head = last_id
        self.ended = False
        """No event follows ``head``."""
        self.watchers = 0
        self.news = asyncio.Event()
        """Set once for the next event, then replaced."""

    def add(self, found: Sequence[JobEvent]) -> None:
        self._events += [(event.id, rendered(event)) for event in found]
        self.head = found[-1].id
        if len(self._events) > self._keep:
            self.floor = self._events[-self._keep - 1][0]
            del self._events[: -self._keep]

    def after(self, last_id: int) -> list[tuple[int, bytes]]:
        return self._events[bisect_right(self._events, last_id, key=itemgetter(0)) :]

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class EventHub:
    """Distributes events to watchers, in a single event loop."""

    def __init__(
        self,
        database: Database,
        *,
        poll_seconds: float,
        stopping: threading.Event,
        keep: int = _KEEP,
        batch: int = _BATCH,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        """``stopping`` ends every stream; call ``wake`` after setting it.

        ``keep`` is the number of events per job in memory, ``batch`` the number read at once, and ``check_seconds`` the
        interval at which the permission of a watcher is checked.
        """
        self._database = database
        self._poll_seconds = poll_seconds
        self._stopping = stopping
        self._keep = keep
        self._batch = batch
        self._check_seconds = check_seconds
        self._feeds: dict[str, _Feed] = {}
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()

    async def watch(
        self, job_id: str, last_id: int, *, is_allowed: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events after ``last_id``, and comments while there are none.

        Ends with the job, when the server stops, or soon after ``is_allowed`` returns False.
        """
        now = asyncio.get_running_loop().time
        check_at = now() + self._check_seconds
        with self._joined(job_id, last_id) as feed:
            while not self._stopping.is_set():
                if now() >= check_at:
                    if not await anyio.to_thread.run_sync(is_allowed):
                        return
                    check_at = now() + self._check_seconds
                news, floor = feed.news, feed.floor
                if is_behind := last_id < floor:
                    found = await anyio.to_thread.run_sync(self._read, job_id, last_id)
                else:
                    found = feed.after(last_id)
                for event_id, event in found:
                    yield event
                    last_id = event_id
                if found:
                    continue
                if is_behind:
                    last_id = floor
                elif feed.ended:
                    return
                elif not await _wait(news, min(_COMMENT_SECONDS, check_at - now())):
                    yield KEEPALIVE_COMMENT

    def wake(self) -> None:
        """Notify all watchers that the server shuts down; must be called in their event loop."""
        for feed in self._feeds.values():
            feed.wake()
        self._due.set()

    async def look(self) -> None:
        """Read new events once. Raises SQLAlchemyError."""
        heads = {job_id: feed.head for job_id, feed in self._feeds.items() if not feed.ended}
        if not heads:
            return
        fresh, ended = await anyio.to_thread.run_sync(self._read_new, heads)
        for job_id, head in heads.items():
            feed = self._feeds.get(job_id)
            # A different feed if all watchers left in the meantime and others came.
            if feed is None or feed.head != head:
                continue
            if job_id in fresh:
                feed.add(fresh[job_id])
            feed.ended = job_id in ended
            if feed.ended or job_id in fresh:
                feed.wake()

    @contextlib.contextmanager
    def _joined(self, job_id: str, last_id: int) -> Iterator[_Feed]:
        feed = self._feeds.setdefault(job_id, _Feed(last_id, self._keep))
        feed.watchers += 1
        if self._task is None or self._task.done():
            self._due = asyncio.Event()
            self._task = asyncio.create_task(self._keep_looking(), name="events")
        if feed.watchers == 1:
            self._due.set()
        try:
            yield feed
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                del self._feeds[job_id]

    async def _keep_looking(self) -> None:
        while self._feeds and not self._stopping.is_set():
            self._due.clear()
            pause = self._poll_seconds
            try:
                await self.look()
            except Exception as error:
                # Whatever the error is, watchers must not wait for a task that has ended.
                is_known = isinstance(error, SQLAlchemyError)
                logger.warning("cannot read events; retrying: %s", error, exc_info=not is_known)
                pause = _PAUSE_AFTER_TROUBLE
            await _wait(self._due, pause)

    def _read(self, job_id: str, last_id: int) -> list[tuple[int, bytes]]:
        with self._database.reading() as session:
            return [(event.id, rendered(event)) for event in events.after(session, job_id, last_id, self._keep)]

    def _read_new(self, heads: Mapping[str, int]) -> tuple[Mapping[str, Sequence[JobEvent]], set[str]]:
        """Return new events by job, and the jobs that have no further events."""
        fresh: defaultdict[str, list[JobEvent]] = defaultdict(list)
        with self._database.reading() as session:
            found = events.newer(session, heads, self._batch)
            ended = events.ended(session, list(heads))
        for event in found:
            fresh[event.job_id].append(event)
        # After a full batch there may be more events, including the final ones.
        return fresh, ended if len(found) < self._batch else set()


def rendered(event: JobEvent) -> bytes:
    data = json.dumps({**event.data, "at": event.at.isoformat()})
    return format_sse_event(event=event.kind.value, data_str=data, id=str(event.id))


async def _wait(happened: asyncio.Event, seconds: float) -> bool:
    """Wait for ``event`` or the timeout; returns whether the event was set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await happened.wait()
    return False
