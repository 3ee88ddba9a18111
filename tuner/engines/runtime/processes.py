"""Processes that may crash, hang or eat memory in place of the engine, and live on from one call to the next.

A process serves calls of ``MODULE.FUNCTIONS``, a mapping of names to functions, one at a time, over a connection, after
a call of ``MODULE.set_up()``. It is started by itself (``python -m tuner.engines.runtime.processes serving FD MODULE``)
or forked by a fork server, which has imported the module (``… forking FD MODULE``): to import TVM takes a second of
processor time and 200 MB, a fork 6 ms and what it writes to. TVM starts no threads before its first parallel loop or
launch, so that there are none that a fork could lose.

TVM's own ``PopenPoolExecutor`` enforces its time limit inside the child, where native code that never returns can hold
it up; here the parent waits, and kills.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection, reduction
from typing import Any, NoReturn

from tuner.engines.protocol import serving
from tuner.engines.protocol.serving import EngineFailure

START_SECONDS = 120.0
_EXIT_SECONDS = 5.0
_READY = "ready"
_SERVING, _FORKING = "serving", "forking"

Functions = Mapping[str, Callable[..., Any]]
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


class Forked:
    """A forked process; ``pid`` is known once it has said that it is ready."""

    def __init__(self, fork_server: ForkServer, parent: subprocess.Popen[bytes]) -> None:
        self._fork_server = fork_server
        self._parent = parent
        self._pidfd: int | None = None
        self.pid: int | None = None

    def named(self, pid: int) -> None:
        self.pid = pid
        # Told by the system when it has ended; old kernels, and some sandboxes, have none.
        with contextlib.suppress(OSError, AttributeError):
            self._pidfd = os.pidfd_open(pid)

    def kill(self) -> None:
        """One that is not ready yet ends when its connection is closed."""
        # The number is nobody else's while its parent lives, which waits for it only when it is asked to.
        if self.pid is not None and self._parent.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int | None:
        """Its status, as ``subprocess.Popen.returncode``; None if it is not known within ``timeout`` seconds."""
        if self.pid is None or not self._has_ended(timeout):
            return None
        pid, self.pid = self.pid, None
        return self._fork_server.status(self._parent, pid, timeout)

    def _has_ended(self, timeout: float) -> bool:
        """The fork server is to wait for none that has not."""
        if self._pidfd is None:
            return True
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(timeout * 1000):
            return False
        os.close(self._pidfd)
        self._pidfd = None
        return True


class ForkServer:
    """Starts with its first process, and again if it was lost."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: connection.Connection | None = None

    def fork(self, environment: Mapping[str, str]) -> tuple[Forked, connection.Connection]:
        """A new process, which need not be ready yet, and the connection that it will serve."""
        ours, theirs = connection.Pipe()
        try:
            parent = self._hand_over(theirs, environment)
        except OSError:
            # It died since it was last asked for anything.
            self.close()
            parent = self._hand_over(theirs, environment)
        finally:
            theirs.close()
        return Forked(self, parent), ours

    def status(self, parent: subprocess.Popen[bytes], pid: int, timeout: float) -> int | None:
        """How a process that has ended did so; None where its parent has ended as well, or does not answer."""
        if self._control is None or parent is not self._process or parent.poll() is not None:
            return None
        deadline = time.monotonic() + timeout
        with contextlib.suppress(OSError, EOFError):
            self._control.send({"status": pid})
            while self._control.poll(max(0.0, deadline - time.monotonic())):
                answer: tuple[int, int | None] = self._control.recv()
                if answer[0] == pid:
                    return answer[1]
        self.close()
        return None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._control is not None:
            self._control.close()
        self._process = self._control = None

    def _hand_over(self, theirs: connection.Connection, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        control = self._started()
        assert self._process is not None  # noqa: S101 - it is started
        control.send({"fork": dict(environment)})
        reduction.send_handle(control, theirs.fileno(), self._process.pid)
        return self._process

    def _started(self) -> connection.Connection:
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        self.close()
        self._process, self._control = _spawn(_FORKING, self._module, self._environment)
        return self._control


def _spawn(
    purpose: str, module: str, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], connection.Connection]:
    ours, theirs = connection.Pipe()
    command = [sys.executable, "-m", __name__, purpose, str(theirs.fileno()), module]
    process = subprocess.Popen(
        command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    theirs.close()
    return process, ours


class Child:
    """One such process, started when first needed and again after it was lost; forked if there is a fork server."""

    def __init__(self, module: str, environment: Mapping[str, str], fork_server: ForkServer | None = None) -> None:
        """``fork_server`` is one of the same module."""
        self._module = module
        self._environment = dict(environment)
        self._fork_server = fork_server
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._connection: connection.Connection | None = None
        self._ready = False
        self._began = self._deadline = 0.0

    def start(self) -> None:
        """Start without waiting, so that several can start side by side."""
        if self._process is not None:
            return
        if self._fork_server:
            self._process, self._connection = self._fork_server.fork(self._environment)
        else:
            self._process, self._connection = _spawn(_SERVING, self._module, self._environment)
        self._ready = False
        self._deadline = time.monotonic() + START_SECONDS

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
            return Outcome(error=ChildDied(self._exit_status()))
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
                self._process.wait(_EXIT_SECONDS)
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
            message = self._exit_status()
            if self._fork_server:
                # It may hang itself; the next child gets a new one.
                self._fork_server.close()
            raise EngineFailure("child_not_started", f"a build or measure process did not start: {message}")
        return True

    def _listen(self) -> None:
        """Hear that it is ready, and which process it is, if it has said so by now."""
        with contextlib.suppress(EOFError, OSError):
            if self._ready or not self.connection.poll(0):
                return
            said, pid = self.connection.recv()
            self._ready = said == _READY
            if isinstance(self._process, Forked):
                self._process.named(pid)

    def _exit_status(self) -> str:
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_EXIT_SECONDS)
        self.kill()
        if status is None:
            return "it closed its connection"
        return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


class Pool:
    """Several children that share a queue of calls; one that starts, again perhaps, keeps no other waiting."""

    def __init__(
        self, size: int, module: str, environment: Mapping[str, str], fork_server: ForkServer | None = None
    ) -> None:
        self._children = [Child(module, environment, fork_server) for _ in range(size)]
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


# Inside such a process, and inside the fork server


def _load(handle: int, module: str) -> tuple[connection.Connection, Functions]:
    """The connection of a started process, and its module's functions after ``set_up()``."""
    serving.die_with_parent()
    opened = connection.Connection(handle)
    os.set_inheritable(handle, False)
    loaded = importlib.import_module(module)
    loaded.set_up()
    return opened, loaded.FUNCTIONS


def _serve(functions: Functions, calls: connection.Connection) -> None:
    """Say that this process is ready, and answer until the other side closes the connection."""
    calls.send((_READY, os.getpid()))
    while True:
        try:
            function, arguments = calls.recv()
        except EOFError:
            return
        try:
            answer = (True, functions[function](*arguments))
        except Exception:  # noqa: BLE001 - whatever a candidate raises is its outcome
            answer = (False, traceback.format_exc()[-4000:])
        calls.send(answer)


def _serve_forks(functions: Functions, control: connection.Connection) -> None:
    # Else the first collection in each fork would copy every page of what was imported.
    gc.collect()
    gc.freeze()
    while True:
        try:
            order = control.recv()
        except EOFError:
            return
        if "status" in order:
            control.send((order["status"], _status(order["status"])))
            continue
        handle = reduction.recv_handle(control)
        if os.fork() == 0:
            control.close()
            _live(handle, order["fork"], functions)
        os.close(handle)


def _live(handle: int, environment: Mapping[str, str], functions: Functions) -> NoReturn:
    """As a forked process, to its end: no code of the fork server runs in it after that."""
    try:
        serving.die_with_parent()
        os.environ.update(environment)
        with connection.Connection(handle) as calls:
            os.set_inheritable(handle, False)
            _serve(functions, calls)
    except ConnectionError:
        os._exit(0)
    except BaseException:  # noqa: BLE001 - nobody above could tell of it
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _status(pid: int) -> int | None:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def _main(purpose: str, handle: str, module: str) -> None:
    connected, functions = _load(int(handle), module)
    with contextlib.suppress(BrokenPipeError):
        (_serve_forks if purpose == _FORKING else _serve)(functions, connected)


if __name__ == "__main__":
    _main(*sys.argv[1:])
