"""The newest events of one job, as the bytes that every watcher of it gets."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from domain.events import JobEvent


@dataclass(frozen=True)
class Piece:
    """Some events in a row; ``last_id`` is where the next piece begins."""

    content: bytes
    last_id: int

    @cached_property
    def chunk(self) -> bytes:
        """The content as a chunk of an HTTP/1.1 body (RFC 9112, section 7.1)."""
        return b"%x\r\n%s\r\n" % (len(self.content), self.content)


class Feed:
    """All of the job's events after ``floor`` up to ``head``; what is older is read from the database.

    Not for several threads at once.
    """

    def __init__(self, events: Sequence[JobEvent], *, keep: int) -> None:
        """``events`` are the job's last, ``keep`` of them or all there are."""
        self._keep = keep
        self._ids: list[int] = []
        self._frames: list[bytes] = []
        self._newest = Piece(b"", 0)
        self._before_newest = 0
        self.floor = events[0].id - 1 if len(events) >= keep else 0
        self.head = self.floor
        self.ended = False
        """Nothing comes after ``head``."""
        self.add(events)

    def add(self, events: Sequence[JobEvent]) -> None:
        """Those that follow ``head``."""
        if not events:
            return
        frames = [frame(event) for event in events]
        self._before_newest = self.head
        self._newest = Piece(b"".join(frames), events[-1].id)
        self._ids += [event.id for event in events]
        self._frames += frames
        self.head = events[-1].id
        surplus = len(self._ids) - self._keep
        if surplus > 0:
            self.floor = self._ids[surplus - 1]
            del self._ids[:surplus], self._frames[:surplus]

    def after(self, last_id: int) -> Piece | None:
        """What follows ``last_id``, empty for nothing yet; None where that begins before what is kept."""
        if last_id < self.floor:
            return None
        if last_id >= self.head:
            return Piece(b"", last_id)
        # Almost every watcher has seen all but the newest: that was joined once for all of them.
        if last_id == self._before_newest:
            return self._newest
        return Piece(b"".join(self._frames[bisect_right(self._ids, last_id) :]), self.head)


def frame(event: JobEvent) -> bytes:
    """One event as the HTML Standard has it, section 9.2.5."""
    data = json.dumps({**event.data, "at": event.at.isoformat()})
    return f"event: {event.kind.value}\ndata: {data}\nid: {event.id}\n\n".encode()
