"""Processes that are forked from one which has imported what they need.

``python -m tuner.engines.protocol.nursery FD MODULE`` imports ``MODULE``, calls its ``set_up()`` and then forks a
process whenever it is sent a connection, over the socket ``FD``: the new one serves that connection as ``calls.serve``
does. To import TVM takes a second of processor time and 200 MB, a fork 6 ms and what it writes to. TVM starts no
threads before its first parallel loop or launch, so that there are none that a fork could lose.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from multiprocessing import connection, reduction
from typing import NoReturn

from tuner.engines.protocol import calls, serving


class Forked:
    """A process of a nursery; ``pid`` is known once it has said that it is ready."""

    def __init__(self, nursery: Nursery, parent: subprocess.Popen[bytes]) -> None:
        self._nursery = nursery
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
        return self._nursery.status(self._parent, pid, timeout)

    def _has_ended(self, timeout: float) -> bool:
        """The nursery is to wait for none that has not."""
        if self._pidfd is None:
            return True
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(timeout * 1000):
            return False
        os.close(self._pidfd)
        self._pidfd = None
        return True


class Nursery:
    """Starts with its first process, and again if it was lost."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: connection.Connection | None = None

    def bear(self, environment: Mapping[str, str]) -> tuple[Forked, connection.Connection]:
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
            self._control.send({"bury": pid})
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
        control.send({"bear": dict(environment)})
        reduction.send_handle(control, theirs.fileno(), self._process.pid)
        return self._process

    def _started(self) -> connection.Connection:
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        self.close()
        ours, theirs = connection.Pipe()
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), self._module]
        environment = {**os.environ, **self._environment}
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
        theirs.close()
        self._control = ours
        return ours


def _tend(control: connection.Connection, functions: calls.Functions) -> None:
    while True:
        try:
            order = control.recv()
        except EOFError:
            return
        if "bury" in order:
            control.send((order["bury"], _status(order["bury"])))
            continue
        handle = reduction.recv_handle(control)
        if os.fork() == 0:
            control.close()
            _live(handle, order["bear"], functions)
        os.close(handle)


def _live(handle: int, environment: Mapping[str, str], functions: calls.Functions) -> NoReturn:
    """As a forked process, to its end: no code of the nursery runs in it after that."""
    try:
        serving.die_with_parent()
        os.environ.update(environment)
        with connection.Connection(handle) as connected:
            os.set_inheritable(handle, False)
            calls.serve(functions, connected)
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


def _main() -> None:
    control, functions = calls.load(sys.argv[1:])
    # Else the first collection in each fork would copy every page of what was imported.
    gc.collect()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):
        _tend(control, functions)


if __name__ == "__main__":
    _main()
