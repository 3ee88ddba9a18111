"""What the servers of this folder have in common: started with a log, killed with all they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Missing(Exception):
    """There is no such server on this machine; the message says how to get it."""


def free_port() -> int:
    """Below the range that the kernel gives to connections, so that nobody takes it before the server does."""
    while True:
        port = secrets.choice(range(20_000, 32_000))
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def start(
    command: Sequence[str],
    *,
    log: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    user: pwd.struct_passwd | None = None,
) -> subprocess.Popen[bytes]:
    """In a session of its own, and never longer than the thread that starts it; as ``user``, if one is named."""

    def end_with_us() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    # Nobody but the owner of a log opened here need be able to open it.
    identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    with log.open("ab") as stream:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            preexec_fn=end_with_us,
            **identity,
        )


def clean_environment() -> dict[str, str]:
    """That of this process, without settings of the service and of boto3."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TUNESMITH_", "AWS_"))}


def kill(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` of the process and its group, and waiting until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM, *, seconds: float = 20.0) -> None:
    """Ask it to end, and kill it when it has not within ``seconds``."""
    # A frozen process hears nothing.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGCONT)
        process.send_signal(number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    kill(process)


def wait_until(ready: Callable[[], bool], *, seconds: float, what: str, log: Path | None = None) -> None:
    """Raises AssertionError, with the end of the log, when it does not become so."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            told = log.read_text(errors="replace")[-2000:] if log and log.exists() else ""
            raise AssertionError(f"not within {seconds:g} s: {what}\n{told}")
        time.sleep(0.05)


def accepts(port: int) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
