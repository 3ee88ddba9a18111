"""What Linux tells about processes that this one did not, or no longer does, supervise. Elsewhere: nothing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_START_TIME = 22 - 3
"""Field 22 of proc(5)'s ``stat``, counted after the command's closing parenthesis, where field 3 comes first."""


def namespace() -> str:
    """In which this process's pids count: containers may share a host name, and then each has a process 1."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return "0"


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which ``pid`` started; None when it is gone. With the pid, it names one process."""
    fields = _fields(pid)
    return None if not fields or fields[0] == "Z" else int(fields[_START_TIME])


def marked(marks: set[str]) -> Iterator[int]:
    """Living processes of ours whose initial environment holds one of these ``NAME=value`` strings.

    A process inherits it from its parent, so it is found in whatever group or session it has put itself.
    """
    wanted = {mark.encode() for mark in marks}
    for entry in _PROC.iterdir() if wanted and _PROC.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted.intersection((entry / "environ").read_bytes().split(b"\0")):
                    yield int(entry.name)


def kill(pid: int) -> bool:
    """Whether there was something to kill."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def signal_group(group: int, number: signal.Signals) -> None:
    # PermissionError: the kernel's answer, on some systems, for a group of which only a zombie is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _fields(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
