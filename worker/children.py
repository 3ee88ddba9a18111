"""Processes that a supervisor keeps running, and that never outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from configuration.refusing import CONFIGURATION_STATUS
from domain import errors

_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
_HEALTHY_SECONDS = 30.0
_TAIL_BYTES = 64 * 1024
_TOLD = re.compile(r"error\[(\w+)\]: (.*)")
"""As ``configuration.refusing`` says it."""
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(kw_only=True)
class Child:
    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    folder: Path
    pass_fds: Sequence[int] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _pause: float = field(default=_FIRST_PAUSE, init=False)
    _started: float = field(default=0.0, init=False)
    _next_start: float = field(default=0.0, init=False)
    _log_start: int = field(default=0, init=False)
    refusals: int = field(default=0, init=False)
    """Times in a row that it ended as who is set up wrongly does, and was not long at work before."""

    def start(self) -> None:
        """Only from the main thread: the child ends with the thread that started it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def end_with_parent() -> None:
            if _LIBC is not None:
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
                if os.getppid() != parent:
                    os.kill(os.getpid(), signal.SIGTERM)

        with self.log.open("ab") as log:
            self._log_start = log.seek(0, os.SEEK_END)
            # A session of its own: Ctrl-C in the terminal reaches the supervisor, which ends children in order.
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=tuple(self.pass_fds),
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self._started = time.monotonic()

    def watch(self) -> str | None:
        """Start the child again, after a pause that grows with every death; returns news for people."""
        if self.process is None:
            return self._start_again() if time.monotonic() >= self._next_start else None
        status = self.process.poll()
        if status is None:
            return None
        if time.monotonic() - self._started > _HEALTHY_SECONDS:
            self._pause, self.refusals = _FIRST_PAUSE, 0
        self.refusals = self.refusals + 1 if status == CONFIGURATION_STATUS else 0
        self._kill_group(self.process.pid)
        self.process = None
        return f"the {self.name} ended ({_told(status)}); {self._put_off()} (log: {self.log})"

    def refusal(self) -> errors.ConfigurationError:
        """Why it would not start the last time, as it said itself."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            told = [found for line in log if (found := _TOLD.fullmatch(line.decode(errors="replace").strip()))]
            if told:
                code, message = told[-1].groups()
                if code == errors.DatabaseDamaged.code:
                    return errors.DatabaseDamaged(message)
                return errors.ConfigurationError(
                    f"the {self.name} cannot start: {message}", hint=f"Its log: {self.log}"
                )
        return errors.ConfigurationError(f"the {self.name} cannot start", hint=f"Its log says why: {self.log}")

    def _start_again(self) -> str | None:
        try:
            self.start()
        except OSError as error:
            # The host has no process, memory, descriptor or room to spare now: no reason to end the others as well.
            return f"the {self.name} cannot be started ({error}); {self._put_off()}"
        return None

    def _put_off(self) -> str:
        pause = self._pause
        self._next_start = time.monotonic() + pause
        self._pause = min(2 * pause, _LONGEST_PAUSE)
        return f"starting it again in {pause:.1f} s"

    def ask_to_end(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def end(self, *, by: float) -> None:
        """Wait until ``by`` (monotonic seconds), then kill it and what it left in its group."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, by - time.monotonic()))
        self._kill_group(self.process.pid)
        self.process.wait()
        self.process = None

    @staticmethod
    def _kill_group(group: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _told(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
