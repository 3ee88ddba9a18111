"""One look at the database for everyone who watches: new events are read once a process and handed to all watchers.

A thread looks while there are watchers, and only then. A watcher is a place in a job's events, nothing else: it takes
what follows from the job's feed, or from the database when it is further behind, so that a slow one holds up nobody,
costs no memory, and misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

from sqlalchemy.exc import SQLAlchemyError

from api.live.feed import Feed, Piece, frame
from domain.events import JobEvent
from storage import events
from storage.database import Database

logger = logging.getLogger(__name__)

_KEEP = 500
_BATCH = 1000
_SECONDS_A_WATCHER = 0.004
"""Waking one costs about a tenth of that: however many they are, the machine is left to those who tune."""
_PAUSE_AFTER_TROUBLE = 2.0
_TOLD_AT_ONCE = 50
"""Others are answered in between."""

WRITE_CHUNK = "tunesmith.write_chunk"
"""Extension of a request's scope: sends bytes straight to the caller; see ``WriteChunk``."""
WriteChunk = Callable[[bytes], bool]
"""Takes one more chunk of a body whose headers were sent; False where it cannot be sent just now."""


class Watcher:
    """Whoever waits for news of one job in an event loop."""

    def __init__(
        self, job_id: str, last_id: int, *, ping_seconds: float, write_chunk: WriteChunk | None = None
    ) -> None:
        self.job_id = job_id
        self.last_id = last_id
        """The last event that was sent."""
        self.loop = asyncio.get_running_loop()
        self.news = asyncio.Event()
        self.direct_until = 0.0
        """Time of the loop until which news may be sent without asking whoever waits for them."""
        self._write_chunk = write_chunk
        self._is_waiting = False
        self._ping_seconds = ping_seconds
        self._told_at = self.loop.time()
        # One timer for the whole watch: to set one and take it back for each piece costs more than to send it.
        self._timer = self.loop.call_later(ping_seconds, self._look)

    def told(self) -> None:
        """Something was sent just now."""
        self._told_at = self.loop.time()

    @property
    def is_ping_due(self) -> bool:
        """Whether nothing was sent for ``ping_seconds``; ``news`` is set when that begins to be so."""
        return self.loop.time() >= self._told_at + self._ping_seconds

    async def wait(self) -> None:
        """Until there are news to be sent; most of them are sent meanwhile, without waking whoever waits."""
        self._is_waiting = True
        try:
            await self.news.wait()
        finally:
            self._is_waiting = False

    def tell(self, feed: Feed | None) -> None:
        """What is new is sent at once where that is simple, which takes a tenth of waking a task for it."""
        if not self._is_told_at_once(feed):
            self.news.set()

    def _is_told_at_once(self, feed: Feed | None) -> bool:
        may_be = self._is_waiting and not self.news.is_set() and self.loop.time() < self.direct_until
        if not may_be or feed is None or feed.ended or self._write_chunk is None:
            return False
        piece = feed.after(self.last_id)
        if piece is None or not piece.content or not self._write_chunk(piece.chunk):
            return False
        self.last_id = piece.last_id
        self.told()
        return True

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        due = self._told_at + self._ping_seconds
        if self.is_ping_due:
            self.news.set()
            due = self.loop.time() + self._ping_seconds
        self._timer = self.loop.call_at(due, self._look)


class EventHub:
    def __init__(
        self,
        database: Database,
        *,
        poll_seconds: float,
        stopping: threading.Event,
        keep: int = _KEEP,
        batch: int = _BATCH,
    ) -> None:
        """``stopping`` ends every stream; whoever sets it calls ``wake``.

        ``keep``: events of each job in memory; ``batch``: events read at once.
        """
        self._database = database
        self._poll_seconds = poll_seconds
        self._stopping = stopping
        self._keep = keep
        self._batch = batch
        self._lock = threading.Lock()
        self._watchers: dict[str, set[Watcher]] = {}
        self._feeds: dict[str, Feed] = {}
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self, watcher: Watcher) -> None:
        with self._lock:
            self._watchers.setdefault(watcher.job_id, set()).add(watcher)
            if watcher.job_id not in self._feeds:
                self._due.set()
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._keep_looking, name="events", daemon=True)
                self._thread.start()

    def leave(self, watcher: Watcher) -> None:
        with self._lock:
            others = self._watchers.get(watcher.job_id, set())
            others.discard(watcher)
            if not others:
                self._watchers.pop(watcher.job_id, None)
                self._feeds.pop(watcher.job_id, None)
            if not self._watchers:
                self._due.set()

    def watchers_of(self, job_id: str) -> int:
        with self._lock:
            return len(self._watchers.get(job_id, ()))

    def after(self, job_id: str, last_id: int) -> Piece | None:
        """What a watcher of the job has not seen yet, empty for nothing so far; None when ``read`` has it."""
        with self._lock:
            feed = self._feeds.get(job_id)
            return feed.after(last_id) if feed else Piece(b"", last_id)

    def read(self, job_id: str, last_id: int) -> Piece:
        """The same for a watcher far behind, from the database: some of it, never nothing twice."""
        with self._database.reading() as session:
            found = events.after(session, job_id, last_id, self._keep)
        with self._lock:
            feed = self._feeds.get(job_id)
            floor = feed.floor if feed else last_id
        return Piece(b"".join(map(frame, found)), found[-1].id if found else max(floor, last_id))

    def has_ended(self, job_id: str, last_id: int) -> bool:
        """Whether nothing will ever follow ``last_id``, or nobody is there any more to tell it."""
        with self._lock:
            feed = self._feeds.get(job_id)
            return self._stopping.is_set() or (feed is not None and feed.ended and last_id >= feed.head)

    def wake(self, job_ids: Sequence[str] | None = None) -> None:
        """Let the watchers of these jobs, or all of them, look for news."""
        waiting: dict[asyncio.AbstractEventLoop, list[Watcher]] = defaultdict(list)
        with self._lock:
            for job_id in list(self._watchers) if job_ids is None else job_ids:
                for watcher in self._watchers.get(job_id, ()):
                    waiting[watcher.loop].append(watcher)
        for loop, watchers in waiting.items():
            # A loop that has ended meanwhile has nobody left to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._tell, watchers)
        if self._stopping.is_set():
            self._due.set()

    def _tell(self, watchers: Sequence[Watcher]) -> None:
        """In the watchers' loop."""
        with self._lock:
            for watcher in watchers[:_TOLD_AT_ONCE]:
                watcher.tell(None if self._stopping.is_set() else self._feeds.get(watcher.job_id))
        if watchers[_TOLD_AT_ONCE:]:
            watchers[0].loop.call_soon(self._tell, watchers[_TOLD_AT_ONCE:])

    def close(self) -> None:
        """Return when the thread has ended; for when ``stopping`` is set."""
        self.wake()
        thread = self._thread
        if thread is not None:
            thread.join(timeout=10)

    def look(self) -> None:
        """Read what is new, once. Raises SQLAlchemyError."""
        with self._lock:
            heads = {job_id: feed.head for job_id, feed in self._feeds.items() if not feed.ended}
            opening = [job_id for job_id in self._watchers if job_id not in self._feeds]
        if not heads and not opening:
            return
        with self._database.reading() as session:
            tails = {job_id: events.tail(session, job_id, self._keep) for job_id in opening}
            fresh = events.newer(session, heads, self._batch) if heads else []
            ended = events.ended(session, [*opening, *heads])
        if len(fresh) == self._batch:
            # There is more: what the jobs ended with may be in it.
            ended -= set(heads)
            self._due.set()
        self.wake(self._take(tails, fresh, ended))

    def _take(self, tails: dict[str, list[JobEvent]], fresh: Sequence[JobEvent], ended: set[str]) -> list[str]:
        """The jobs that have news."""
        of: dict[str, list[JobEvent]] = defaultdict(list)
        for event in fresh:
            of[event.job_id].append(event)
        with self._lock:
            for job_id, tail in tails.items():
                if job_id in self._watchers:
                    self._feeds[job_id] = Feed(tail, keep=self._keep)
            for job_id, found in of.items():
                if job_id in self._feeds:
                    self._feeds[job_id].add(found)
            for job_id in ended & set(self._feeds):
                self._feeds[job_id].ended = True
        return [*tails, *of, *ended]

    def _keep_looking(self) -> None:
        pause = 0.0
        while self._is_needed():
            self._due.wait(pause)
            self._due.clear()
            try:
                self.look()
                pause = self._pause()
            except SQLAlchemyError as error:
                logger.warning("events cannot be read, trying again: %s", error)
                pause = _PAUSE_AFTER_TROUBLE
            except Exception:
                # Whatever it is, watchers must not wait for a thread that is gone.
                logger.exception("events cannot be read, trying again")
                pause = _PAUSE_AFTER_TROUBLE

    def _is_needed(self) -> bool:
        with self._lock:
            if self._watchers and not self._stopping.is_set():
                return True
            self._thread = None
            return False

    def _pause(self) -> float:
        with self._lock:
            count = sum(map(len, self._watchers.values()))
        return max(self._poll_seconds, count * _SECONDS_A_WATCHER)
