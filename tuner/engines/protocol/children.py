"""Processes that may crash, hang or eat memory in place of the engine, and live on from one call to the next.

``python -m tuner.engines.protocol.children FD MODULE`` serves calls of ``MODULE.FUNCTIONS``, a mapping of names to
functions, one at a time, over the socket ``FD``, after a call of ``MODULE.set_up()``. TVM's own ``PopenPoolExecutor``
enforces its time limit inside the child, where native code that never returns can hold it up; here the parent waits,
and kills.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from tuner.engines.protocol import calls
from tuner.engines.protocol.nursery import Forked, Nursery
from tuner.engines.protocol.serving import EngineFailure

START_SECONDS = 120.0
_BURIAL_SECONDS = 5.0

Call = tuple[str, Sequence[Any]]
"""A function's name, and its arguments."""


class ChildDied(Exception):
    """The process ended by itself or by a signal; the message says how."""


class ChildTimedOut(Exception):
    """The call ran past its time limit; the process was killed."""


class ChildRaised(Exception):
    """The function raised; the message is its traceback."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one call came to: a value, or why there is none."""

    value: Any = None
    error: ChildDied | ChildTimedOut | ChildRaised | None = None
    seconds: float | None = None
    """From its begin; None of a call that did not come to an end."""


class Child:
    """One such process, started when first needed and again after it was lost; forked if there is a nursery."""

    def __init__(self, module: str, environment: Mapping[str, str], nursery: Nursery | None = None) -> None:
        """``nursery`` is one of the same module."""
        self._module = module
        self._environment = dict(environment)
        self._nursery = nursery
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._connection: connection.Connection | None = None
        self._ready = False
        self._began = self._deadline = 0.0

    def start(self) -> None:
        """Start without waiting, so that several can start side by side."""
        if self._process is not None:
            return
        self._process, self._connection = self._nursery.bear(self._environment) if self._nursery else self._spawned()
        self._ready = False
        self._deadline = time.monotonic() + START_SECONDS

    def _spawned(self) -> tuple[subprocess.Popen[bytes], connection.Connection]:
        ours, theirs = connection.Pipe()
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), self._module]
        environment = {**os.environ, **self._environment}
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
        theirs.close()
        return process, ours

    def submit(self, function: str, arguments: Sequence[Any], timeout: float) -> None:
        """Send a call; its time limit starts now, after any start-up."""
        self.start()
        self.is_ready(START_SECONDS)
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        # A child that has just died is noticed when its answer is fetched.
        with contextlib.suppress(OSError):
            self.connection.send((function, tuple(arguments)))

    def fetch(self) -> Outcome:
        """The outcome of the call, waiting for it at most to its time limit."""
        try:
            if not self.connection.poll(max(0.0, self._deadline - time.monotonic())):
                self.kill()
                return Outcome(error=ChildTimedOut(f"more than {time.monotonic() - self._began:.3g} s"))
            succeeded, value = self.connection.recv()
        except (EOFError, OSError):
            return Outcome(error=ChildDied(self._burial()))
        seconds = time.monotonic() - self._began
        return (
            Outcome(value=value, seconds=seconds) if succeeded else Outcome(error=ChildRaised(value), seconds=seconds)
        )

    def limit(self, seconds: float) -> None:
        """Move the call's time limit to ``seconds`` from its begin."""
        self._deadline = self._began + seconds

    def allow(self, seconds: float) -> None:
        """Move the call's time limit to ``seconds`` from now."""
        self._deadline = time.monotonic() + seconds

    def has_answered(self) -> bool:
        """Whether ``fetch`` has an outcome other than the time limit: a value, an exception or a death."""
        return self.connection.poll(0)

    def is_due(self) -> bool:
        return time.monotonic() >= self._deadline

    @property
    def connection(self) -> connection.Connection:
        if self._connection is None:
            raise ChildDied("it was never started")
        return self._connection

    @property
    def remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def kill(self) -> None:
        if self._process is not None:
            # One that is ready may not have been asked yet which process it is, and could not be killed.
            self._listen()
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_BURIAL_SECONDS)
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def is_ready(self, wait_seconds: float = 0.0) -> bool:
        """Whether it takes calls by now. Raises EngineFailure ``child_not_started``."""
        if self._ready:
            return True
        with contextlib.suppress(OSError):
            if not self.connection.poll(wait_seconds) and not self.is_due():
                return False
        self._listen()
        if not self._ready:
            message = self._burial()
            if self._nursery:
                # It may hang itself; the next child gets a new one.
                self._nursery.close()
            raise EngineFailure("child_not_started", f"a build or measure process did not start: {message}")
        return True

    def _listen(self) -> None:
        """Hear that it is ready, and which process it is, if it has said so by now."""
        with contextlib.suppress(EOFError, OSError):
            if self._ready or not self.connection.poll(0):
                return
            said, pid = self.connection.recv()
            self._ready = said == calls.READY
            if isinstance(self._process, Forked):
                self._process.named(pid)

    def _burial(self) -> str:
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_BURIAL_SECONDS)
        self.kill()
        if status is None:
            return "it closed its connection"
        return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


class Crew:
    """Several children that share a queue of calls; one that starts, again perhaps, keeps no other waiting."""

    def __init__(self, size: int, module: str, environment: Mapping[str, str], nursery: Nursery | None = None) -> None:
        self._children = [Child(module, environment, nursery) for _ in range(size)]
        self._waiting: deque[tuple[int, str, Sequence[Any], float]] = deque()
        self._busy: dict[Child, int] = {}
        self._starting: list[Child] = []
        """Those that are waited for because calls are."""

    def start(self) -> None:
        for child in self._children:
            child.start()

    def map(
        self, calls: Sequence[Call], limit: Callable[[], float], saw: Callable[[Outcome], None] = lambda _: None
    ) -> list[Outcome]:
        """Outcomes in the order of ``calls``, each of which may take ``limit()`` seconds.

        ``saw`` hears each outcome, after which ``limit`` is asked anew, for the calls under way too.
        """
        outcomes: list[Outcome] = [Outcome()] * len(calls)
        try:
            self.submit(calls, limit())
            while self.connections:
                connection.wait(self.connections, self.remaining)
                for position, outcome in self.collect():
                    outcomes[position] = outcome
                    saw(outcome)
                self._allow(limit())
        except BaseException:
            # Else whoever comes next would get these calls' answers.
            self.kill()
            raise
        return outcomes

    def submit(self, calls: Sequence[Call], timeout: float) -> None:
        """Begin ``calls``, whose outcomes ``collect`` returns as they come."""
        self.start()
        self._waiting.extend((position, *call, timeout) for position, call in enumerate(calls))
        self._hand_out()

    def collect(self) -> list[tuple[int, Outcome]]:
        """What has ended by now, with its position among the calls submitted; does not wait."""
        answered = connection.wait(self.connections, 0)
        ended = [child for child in self._busy if child.connection in answered or child.is_due()]
        outcomes = [(self._busy.pop(child), child.fetch()) for child in ended]
        self._hand_out()
        return outcomes

    @property
    def connections(self) -> list[connection.Connection]:
        """None once all calls have ended; one of them can be read when ``collect`` has something to do."""
        return [child.connection for child in (*self._busy, *self._starting)]

    @property
    def remaining(self) -> float:
        """Seconds until a call, or a start, passes its time limit; infinite when none is under way."""
        return min((child.remaining for child in (*self._busy, *self._starting)), default=float("inf"))

    def kill(self) -> None:
        self._waiting.clear()
        self._busy.clear()
        self._starting.clear()
        for child in self._children:
            child.kill()

    def _allow(self, seconds: float) -> None:
        """Another time limit for what is under way or waits."""
        self._waiting = deque((*call[:3], seconds) for call in self._waiting)
        for child in self._busy:
            child.limit(seconds)

    def _hand_out(self) -> None:
        self._starting.clear()
        for child in self._children:
            if not self._waiting or child in self._busy:
                continue
            child.start()
            if not child.is_ready():
                self._starting.append(child)
                continue
            position, function, arguments, timeout = self._waiting.popleft()
            child.submit(function, arguments, timeout)
            self._busy[child] = position
        if not self._waiting:
            self._starting.clear()


def _main() -> None:
    connected, functions = calls.load(sys.argv[1:])
    with contextlib.suppress(BrokenPipeError):
        calls.serve(functions, connected)


if __name__ == "__main__":
    _main()
