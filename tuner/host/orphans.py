"""Removal of orphaned engine processes, which outlived their host process.

Every session has an entry under ``<home>/run/engines``, and its engine an environment variable and a temporary folder.
Normally an engine ends with its host. If both were killed in an unlucky order, or a child left the engine's process
group, ``sweep`` finds the processes by the variable and removes the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TUNESMITH_ENGINE_SESSION"
_DYING_SECONDS = 1.0
_MARK = re.compile(f"{VARIABLE}=[0-9a-f]{{32}}")
_PROC = Path("/proc")
_START_TIME = 22 - 3
"""Field 22 of proc(5)'s ``stat``, counted from field 3, the first after the command's closing parenthesis."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """Entry of a session; ``mark`` is unique, so a reused pid cannot match."""

    path: Path | None
    mark: str
    folder: Path
    """For temporary files of this engine."""

    @property
    def environment(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        return {name: value}

    def remove(self) -> None:
        """Remove the entry after its folder, so that every folder has an entry."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.path:
            self.path.unlink(missing_ok=True)


def note(engine: str, home: Path | None) -> Note:
    """Create the entry and its folder before the engine starts, as Landlock may deny access to folders created later.

    Without a home folder there is no entry, and ``sweep`` finds nothing.
    """
    token = secrets.token_hex(16)
    mark = f"{VARIABLE}={token}"
    path = _folder(home) / f"{engine}-{token}.json" if home else None
    made = Note(path=path, mark=mark, folder=Path(tempfile.gettempdir()) / _folder_name(mark))
    try:
        if path:
            _write(path, made)
        made.folder.mkdir(mode=0o700)
    except BaseException:
        made.remove()
        raise
    return made


def _write(path: Path, made: Note) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = {"host": _host(), "pid": os.getpid(), "start_time": start_time(os.getpid())}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"mark": made.mark, "owner": owner, "folder": str(made.folder)}))
    partial.replace(path)


def sweep(home: Path) -> list[int]:
    """Kill the orphans of ended host processes and remove their temporary folders; returns the pids.

    Safe with concurrent sessions.
    """
    orphaned: dict[str, Note] = {}
    for path in sorted(_folder(home).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):
            found, dead = _read(path)
            if dead:
                orphaned[found.mark] = found
    killed = [pid for pid in marked(set(orphaned)) if kill(pid)]
    deadline = time.monotonic() + _DYING_SECONDS
    while any(map(start_time, killed)) and time.monotonic() < deadline:
        # Before that, they may still write to their folders.
        time.sleep(0.01)
    for found in orphaned.values():
        found.remove()
    return killed


def _read(path: Path) -> tuple[Note, bool]:
    """Read an entry and whether its host process has ended; an invalid file belongs to no living process."""
    mark, folder, dead = f"{VARIABLE}={path.stem.rpartition('-')[2]}", Path(), True
    with contextlib.suppress(ValueError, KeyError, TypeError):
        entry = json.loads(path.read_text())
        owner = int(entry["owner"]["pid"]), entry["owner"]["start_time"]
        # An engine may have written the entry: it must not lead to killing other processes or removing other folders.
        if _MARK.fullmatch(str(entry["mark"])):
            mark, folder = entry["mark"], Path(str(entry.get("folder", "")))
            # Processes of other hosts or containers with the same home folder cannot be checked.
            dead = entry["owner"].get("host", _host()) == _host() and start_time(owner[0]) != owner[1]
    if folder.name != _folder_name(mark):
        folder = Path(tempfile.gettempdir()) / _folder_name(mark)
    return Note(path=path, mark=mark, folder=folder), dead


def _host() -> str:
    """Return host and container, within which a pid is unique."""
    return f"{socket.gethostname()}/{namespace()}"


def _folder_name(mark: str) -> str:
    # Short, as engines create sockets in it, whose paths are limited.
    return f"tunesmith-engine-{mark.rpartition('=')[2][:12]}"


def _folder(home: Path) -> Path:
    return home / "run" / "engines"


def namespace() -> str:
    """Return the pid namespace: containers may share a host name, and each has a process 1."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return "0"


def start_time(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot; None if it has ended. With the pid, it
    identifies a process."""
    fields = _fields(pid)
    return None if not fields or fields[0] == "Z" else int(fields[_START_TIME])


def marked(marks: set[str]) -> Iterator[int]:
    """Return our live processes whose initial environment contains one of these ``NAME=value`` strings.

    Children inherit it, so processes are found in any process group and session.
    """
    wanted = {mark.encode() for mark in marks}
    for entry in _PROC.iterdir() if wanted and _PROC.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted.intersection((entry / "environ").read_bytes().split(b"\0")):
                    yield int(entry.name)


def kill(pid: int) -> bool:
    """Kill processes; returns whether there were any."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def signal_group(group: int, number: signal.Signals) -> None:
    # PermissionError: some systems' answer for a group with only a zombie left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _fields(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
