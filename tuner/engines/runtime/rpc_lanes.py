"""One process that opens sessions on devices, one after the other, and makes calls in them.

The process's module has, beside what the calls name,

* ``open_session(host, port, match_key, session_timeout, threads, probe)``, where ``probe`` is None or the path of a
  library that the device must load, run and answer rightly; and ``close_session()``. Both return ``(Ended, message)``.

A call returns ``(Ended, value or message)``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tuner.engines.runtime import processes
from tuner.engines.runtime.trackers import Offer, Ticket

OPEN_SECONDS = 20.0
"""For connecting to a device that is ours, and for its probe."""
_OVERTIME_SECONDS = 15.0
"""For a session's end to be told after its time."""


class Ended(StrEnum):
    """How a call in a session ended, as the child tells it, or as its silence does."""

    OK = "ok"
    RAISED = "raised"  # the device told of an error; the session goes on
    EXPIRED = "expired"  # the device ended the session: its time was over
    LOST = "lost"  # the connection broke, or the device does not answer
    STALE = "stale"  # the device was given to somebody else, or is being registered anew
    WRONG_DEVICE = "wrong_device"  # it cannot run what is built for this target
    WRONG_ANSWER = "wrong_answer"  # it computes something else
    REFUSED = "refused"  # what was asked for is wrong: the message is an engine's code, then its words
    OVERTIME = "overtime"  # still at it; another end comes later


_OTHER_RELEASE = "pending_request_bytes_"
"""In what TVM says of the first call when a server writes its answers as another release does."""


def explained(ended: Ended, message: str) -> tuple[Ended, str]:
    """What an opening that failed tells of the device."""
    if _OTHER_RELEASE in message:
        return Ended.WRONG_DEVICE, "its TVM is of another release than the engine's, and reads no call of it"
    return ended, message


class State(StrEnum):
    IDLE = "idle"
    QUEUED = "queued"  # waits for the tracker
    OPENING = "opening"
    READY = "ready"  # has a session
    RUNNING = "running"
    OVERDUE = "overdue"  # its call is past its time limit
    CLOSING = "closing"


@dataclass(kw_only=True)
class Call:
    """Something to do on a device."""

    position: int
    function: str
    arguments: Sequence[Any]
    timeout: float
    """Seconds from the session's begin."""
    lost_on: list[str] = field(default_factory=list)
    """Devices that went away with it."""
    lost_as: Ended = field(default_factory=lambda: Ended.LOST)
    overdue_on: str | None = None


class Lane:
    """Does not decide anything: a fleet tells it what to do next, and when to look."""

    def __init__(self, child: processes.Child) -> None:
        self._child = child
        self.state = State.IDLE
        self.ticket: Ticket | None = None
        self.offer: Offer | None = None
        self.call: Call | None = None
        self.rests_until = 0.0
        self._ends_at = 0.0

    @property
    def device(self) -> str:
        return self.offer.device if self.offer else ""

    @property
    def is_busy(self) -> bool:
        return self.state in (State.OPENING, State.RUNNING, State.OVERDUE, State.CLOSING)

    @property
    def has_session(self) -> bool:
        return self.state in (State.READY, State.RUNNING, State.OVERDUE)

    @property
    def session_seconds(self) -> float:
        """What is left of the session's time."""
        return max(0.0, self._ends_at - time.monotonic())

    @property
    def waits_for(self) -> Any:
        """What can be read when there is something to do, or None."""
        return self.ticket if self.state is State.QUEUED else self._child.connection if self.is_busy else None

    @property
    def patience(self) -> float:
        """Seconds after which to look even so."""
        if self.is_busy:
            return self._child.remaining
        return float("inf") if self.state is State.QUEUED else max(0.0, self.rests_until - time.monotonic())

    def start(self) -> None:
        self._child.start()

    def ask(self, function: str, arguments: Sequence[Any], timeout: float) -> tuple[Ended, Any]:
        """Call something that needs no session, and wait for it."""
        self._child.submit(function, arguments, timeout)
        return _meaning(self._child.fetch())

    def enqueue(self, ticket: Ticket) -> None:
        self.ticket, self.state = ticket, State.QUEUED

    def leave_queue(self) -> None:
        if self.ticket:
            self.ticket.close()
        self.ticket, self.state = None, State.IDLE

    def take(self) -> None:
        """Leave the queue with the device that was offered."""
        if self.ticket:
            self.ticket.leave()
        self.ticket, self.state = None, State.IDLE

    def rest(self, seconds: float) -> None:
        self.rests_until = time.monotonic() + seconds

    def open(self, offer: Offer, session_timeout: float, threads: int, probe: str | None) -> None:
        self.take()
        self.offer, self.state = offer, State.OPENING
        self._ends_at = time.monotonic() + session_timeout
        place = (offer.host, offer.port, offer.match_key)
        self._child.submit("open_session", (*place, session_timeout, threads, probe), OPEN_SECONDS)

    def run(self, call: Call) -> None:
        self.call, self.state = call, State.RUNNING
        self._child.submit(call.function, call.arguments, call.timeout)

    def close(self) -> None:
        self.state = State.CLOSING
        self._child.submit("close_session", (), OPEN_SECONDS)

    def look(self) -> tuple[Ended, Any] | None:
        """How what it is at has ended, if it has; None: it has not, or nobody needs to know."""
        if not self._child.has_answered():
            if not self._child.is_due():
                return None
            if self.state is State.RUNNING:
                # The device ends the session by itself. To hang up would not free it any sooner.
                self.state = State.OVERDUE
                self._child.allow(self.session_seconds + _OVERTIME_SECONDS)
                return Ended.OVERTIME, f"not done within {self.call.timeout if self.call else 0:g} s"
        before, (ended, value) = self.state, _meaning(self._child.fetch())
        goes_on = ended is Ended.OK or (before is not State.OPENING and ended in (Ended.RAISED, Ended.REFUSED))
        self.state = State.READY if goes_on and before is not State.CLOSING else State.IDLE
        return None if before is State.CLOSING else (ended, value)

    def kill(self) -> None:
        self.leave_queue()
        self._child.kill()
        self.call, self.state = None, State.IDLE


def _meaning(outcome: processes.Outcome) -> tuple[Ended, Any]:
    if isinstance(outcome.error, processes.ChildRaised):
        return Ended.RAISED, str(outcome.error)
    if outcome.error is not None:
        return Ended.LOST, f"no answer: {outcome.error}"
    ended, value = outcome.value
    return Ended(ended), value
