"""Child processes that run calls which may crash, hang or exhaust memory, and are reused between calls.

A child serves calls of ``MODULE.FUNCTIONS``, a mapping of names to functions, one at a time over a connection, after
calling ``MODULE.set_up()``. It is started directly (``python -m tuner.engines.runtime.processes serving FD MODULE``) or
forked by a fork server that has imported the module (``… forking FD MODULE``). Importing TVM takes a second of CPU time
and 200 MB; a fork takes 6 ms and the pages it writes to. TVM starts no threads before its first parallel loop or
launch, so a fork loses none.

A call whose process ended with the fork server, for example because somebody killed it, is repeated: that says nothing
about the call.

TVM's ``PopenPoolExecutor`` enforces its time limit inside the child, where native code that never returns can defeat
it; here the parent waits and kills.
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
from dataclasses import dataclass, replace
from multiprocessing import connection, reduction
from typing import Any, NoReturn

from tuner.engines.protocol import serving
from tuner.engines.protocol.serving import EngineFailure

START_SECONDS = 120.0
_EXIT_SECONDS = 5.0
_ORPHANED_SECONDS = 1.0
_MOST_LOSSES = 3
"""Ends of the fork server after which a call is not repeated again."""
_READY = "ready"
_SERVING, _FORKING = "serving", "forking"

Functions = Mapping[str, Callable[..., Any]]
Call = tuple[str, Sequence[Any]]
"""Function name and arguments."""


class ChildDied(Exception):
    """The process exited or was killed by a signal; the message says how."""


class ForkServerDied(ChildDied):
    """The process ended with its fork server."""


class ChildTimedOut(Exception):
    """The call exceeded its time limit and the process was killed."""


class ChildRaised(Exception):
    """The function raised an exception; the message is its traceback."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one call: a value or an error."""

    value: Any = None
    error: ChildDied | ChildTimedOut | ChildRaised | None = None
    seconds: float | None = None
    """Duration of the call; None if it did not finish."""


class Forked:
    """A forked process; ``pid`` is known once it reports ready."""

    def __init__(self, fork_server: ForkServer, parent: subprocess.Popen[bytes]) -> None:
        self._fork_server = fork_server
        self._parent = parent
        self._pidfd: int | None = None
        self.pid: int | None = None

    def named(self, pid: int) -> None:
        self.pid = pid
        # A pidfd becomes readable when the process exits; old kernels and some sandboxes do not support it.
        with contextlib.suppress(OSError, AttributeError):
            self._pidfd = os.pidfd_open(pid)

    def kill(self) -> None:
        """Kill the process. One that is not ready yet exits when its connection is closed."""
        # The pid cannot be reused while the parent lives, which reaps the process only on request.
        if self.pid is not None and self._parent.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int | None:
        """Return the exit status as ``subprocess.Popen.returncode`` does; None if unknown after ``timeout`` seconds."""
        if self.pid is None or not self._has_ended(timeout):
            return None
        pid, self.pid = self.pid, None
        return self._fork_server.status(self._parent, pid, timeout)

    def is_orphaned(self, wait_seconds: float = 0.0) -> bool:
        """Return whether the fork server has ended, and this process with it."""
        if wait_seconds and self._fork_server.runs(self._parent):
            # A process learns of its parent's death before anybody else can.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._parent.wait(wait_seconds)
        return not self._fork_server.runs(self._parent)

    def _has_ended(self, timeout: float) -> bool:
        """Return whether the process has ended; the fork server must not block on a running one."""
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
    """Process that forks children; started on first use and restarted if it dies."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: connection.Connection | None = None

    def fork(self, environment: Mapping[str, str]) -> tuple[Forked, connection.Connection]:
        """Return a new process, which may not be ready yet, and the connection that it will serve."""
        ours, theirs = connection.Pipe()
        try:
            parent = self._hand_over(theirs, environment)
        except OSError:
            # The server died since its last request.
            self.close()
            parent = self._hand_over(theirs, environment)
        finally:
            theirs.close()
        return Forked(self, parent), ours

    def runs(self, parent: subprocess.Popen[bytes]) -> bool:
        """Return whether ``parent`` is still the process that forks."""
        return parent is self._process and parent.poll() is None

    def status(self, parent: subprocess.Popen[bytes], pid: int, timeout: float) -> int | None:
        """Return the exit status of an ended process; None if the fork server has ended or does not answer."""
        if self._control is None or not self.runs(parent):
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
    """A child process, started on first use and restarted if lost; forked if there is a fork server."""

    def __init__(self, module: str, environment: Mapping[str, str], fork_server: ForkServer | None = None) -> None:
        """``fork_server`` must serve the same module."""
        self._module = module
        self._environment = dict(environment)
        self._fork_server = fork_server
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._connection: connection.Connection | None = None
        self._ready = False
        self._losses = 0
        self._began = self._deadline = 0.0

    def start(self) -> None:
        """Start without waiting, so that several children start in parallel."""
        if isinstance(self._process, Forked) and self._process.is_orphaned():
            self.kill()
        if self._process is not None:
            return
        if self._fork_server:
            self._process, self._connection = self._fork_server.fork(self._environment)
        else:
            self._process, self._connection = _spawn(_SERVING, self._module, self._environment)
        self._ready = False
        self._deadline = time.monotonic() + START_SECONDS

    def submit(self, function: str, arguments: Sequence[Any], timeout: float) -> None:
        """Send a call. Its time limit starts now, after any start-up."""
        self.start()
        self.is_ready(START_SECONDS)
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        # A child that has just died is detected when its answer is fetched.
        with contextlib.suppress(OSError):
            self.connection.send((function, tuple(arguments)))

    def fetch(self) -> Outcome:
        """Wait for the outcome of the call, at most until its time limit."""
        try:
            if not self.connection.poll(max(0.0, self._deadline - time.monotonic())):
                self.kill()
                return Outcome(error=ChildTimedOut(f"more than {time.monotonic() - self._began:.3g} s"))
            succeeded, value = self.connection.recv()
        except (EOFError, OSError):
            return Outcome(error=self._death())
        seconds = time.monotonic() - self._began
        return (
            Outcome(value=value, seconds=seconds) if succeeded else Outcome(error=ChildRaised(value), seconds=seconds)
        )

    def ask(self, function: str, arguments: Sequence[Any], timeout: float) -> Outcome:
        """Submit a call and fetch its outcome. Raises EngineFailure ``child_not_started``, also if the fork server ends
        during the call time and again."""
        for _ in range(_MOST_LOSSES):
            self.submit(function, arguments, timeout)
            outcome = self.fetch()
            if not isinstance(outcome.error, ForkServerDied):
                return outcome
        raise _not_started("the fork server ended again and again")

    def limit(self, seconds: float) -> None:
        """Set the call's time limit to ``seconds`` after its start."""
        self._deadline = self._began + seconds

    def allow(self, seconds: float) -> None:
        """Set the call's time limit to ``seconds`` from now."""
        self._deadline = time.monotonic() + seconds

    def has_answered(self) -> bool:
        """Return whether ``fetch`` would return a value, an exception or a death without waiting."""
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
            # A process may be ready without its pid having been read yet, and could not be killed without it.
            self._listen()
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_SECONDS)
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def is_ready(self, wait_seconds: float = 0.0) -> bool:
        """Return whether the child accepts calls. Raises EngineFailure ``child_not_started``."""
        if self._ready:
            return True
        with contextlib.suppress(OSError):
            if not self.connection.poll(wait_seconds) and not self.is_due():
                return False
        self._listen()
        if self._ready:
            self._losses = 0
            return True
        death = self._death()
        self._losses += 1
        if isinstance(death, ForkServerDied) and self._losses < _MOST_LOSSES:
            self.start()
            return self.is_ready(wait_seconds)
        if self._fork_server:
            # The fork server itself may hang; the next child gets a new one.
            self._fork_server.close()
        raise _not_started(str(death))

    def _listen(self) -> None:
        """Read the ready message and the pid, if they have arrived."""
        with contextlib.suppress(EOFError, OSError):
            if self._ready or not self.connection.poll(0):
                return
            message, pid = self.connection.recv()
            self._ready = message == _READY
            if isinstance(self._process, Forked):
                self._process.named(pid)

    def _death(self) -> ChildDied:
        process, status = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(_EXIT_SECONDS)
        orphaned = status is None and isinstance(process, Forked) and process.is_orphaned(_ORPHANED_SECONDS)
        self.kill()
        if orphaned:
            return ForkServerDied("its fork server ended")
        if status is None:
            return ChildDied("it closed its connection")
        return ChildDied(f"ended by signal {-status}" if status < 0 else f"ended with status {status}")


def _not_started(reason: str) -> EngineFailure:
    return EngineFailure("child_not_started", f"a build or measure process did not start: {reason}")


@dataclass(frozen=True, kw_only=True)
class _Queued:
    """A call of a pool."""

    position: int
    function: str
    arguments: Sequence[Any]
    timeout: float
    losses: int = 0
    """Fork servers that ended during the call."""


class Pool:
    """Children that share a queue of calls; one that is starting or restarting does not block the others."""

    def __init__(
        self, size: int, module: str, environment: Mapping[str, str], fork_server: ForkServer | None = None
    ) -> None:
        self._children = [Child(module, environment, fork_server) for _ in range(size)]
        self._waiting: deque[_Queued] = deque()
        self._busy: dict[Child, _Queued] = {}
        self._starting: list[Child] = []
        """Children whose start-up is awaited because calls are queued."""

    def start(self) -> None:
        for child in self._children:
            child.start()

    def map(
        self, calls: Sequence[Call], limit: Callable[[], float], saw: Callable[[Outcome], None] = lambda _: None
    ) -> list[Outcome]:
        """Run ``calls`` and return their outcomes in order; each may take ``limit()`` seconds.

        ``saw`` is called with each outcome; ``limit`` is then evaluated again and also applied to running calls.
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
            # Otherwise the next caller would receive the answers to these calls.
            self.kill()
            raise
        return outcomes

    def submit(self, calls: Sequence[Call], timeout: float) -> None:
        """Queue ``calls``; ``collect`` returns their outcomes."""
        self.start()
        for position, (function, arguments) in enumerate(calls):
            self._waiting.append(_Queued(position=position, function=function, arguments=arguments, timeout=timeout))
        self._hand_out()

    def collect(self) -> list[tuple[int, Outcome]]:
        """Return the outcomes available now, with their positions among the submitted calls; does not block.

        Raises EngineFailure ``child_not_started``, also if the fork server ends during one call time and again.
        """
        answered = connection.wait(self.connections, 0)
        ended = [child for child in self._busy if child.connection in answered or child.is_due()]
        outcomes = []
        for child in ended:
            call, outcome = self._busy.pop(child), child.fetch()
            if isinstance(outcome.error, ForkServerDied):
                self._repeat(call)
            else:
                outcomes.append((call.position, outcome))
        self._hand_out()
        return outcomes

    @property
    def connections(self) -> list[connection.Connection]:
        """Connections to wait on; one becomes readable when ``collect`` has work. Empty once all calls have ended."""
        return [child.connection for child in (*self._busy, *self._starting)]

    @property
    def remaining(self) -> float:
        """Seconds until the next call or start-up times out; infinite if none is in progress."""
        return min((child.remaining for child in (*self._busy, *self._starting)), default=float("inf"))

    def kill(self) -> None:
        self._waiting.clear()
        self._busy.clear()
        self._starting.clear()
        for child in self._children:
            child.kill()

    def _repeat(self, call: _Queued) -> None:
        if call.losses + 1 >= _MOST_LOSSES:
            raise _not_started("the fork server ended again and again")
        self._waiting.appendleft(replace(call, losses=call.losses + 1))

    def _allow(self, seconds: float) -> None:
        """Set the time limit of running and queued calls."""
        self._waiting = deque(replace(call, timeout=seconds) for call in self._waiting)
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
            call = self._waiting.popleft()
            child.submit(call.function, call.arguments, call.timeout)
            self._busy[child] = call
        if not self._waiting:
            self._starting.clear()


# Code that runs inside child processes and the fork server


def _load(handle: int, module: str) -> tuple[connection.Connection, Functions]:
    """Import the module, call ``set_up()`` and return the connection and the module's functions."""
    serving.die_with_parent()
    opened = connection.Connection(handle)
    os.set_inheritable(handle, False)
    loaded = importlib.import_module(module)
    loaded.set_up()
    return opened, loaded.FUNCTIONS


def _serve(functions: Functions, calls: connection.Connection) -> None:
    """Report ready, then answer calls until the other side closes the connection."""
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
    # Otherwise the first garbage collection in each fork would copy every page of the imported modules.
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
    """Serve as a forked process and exit, never returning to the code of the fork server."""
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
