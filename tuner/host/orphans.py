"""Engines that outlived the host process that started them.

Every session notes itself in a file under ``<home>/run/engines``, and gives its engine an environment variable and a
temporary folder of its own. Normally an engine ends with its host; when both were killed in an unlucky order, or a
child left the engine's process group, ``sweep`` finds what is left by that variable, and removes the folder.
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
"""Field 22 of proc(5)'s ``stat``, counted after the command's closing parenthesis, where field 3 comes first."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """A session's entry; ``mark`` is unique, so no reused pid can be taken for it."""

    path: Path | None
    mark: str
    folder: Path
    """For temporary files of the engine alone."""

    @property
    def environment(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        return {name: value}

    def remove(self) -> None:
        """With the folder, and that first: while there is one, there is a note of it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.path:
            self.path.unlink(missing_ok=True)


def note(engine: str, home: Path | None) -> Note:
    """Made before the engine starts, and its folder too: Landlock may keep it from reading what is later made beside.

    Without a home there is no file, and nothing to sweep later.
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
    """Kill what engine sessions of dead hosts left behind, and remove their temporary folders; returns the pids.

    Safe beside living sessions.
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
        # Until then they may still write into their folders.
        time.sleep(0.01)
    for found in orphaned.values():
        found.remove()
    return killed


def _read(path: Path) -> tuple[Note, bool]:
    """The session's note and whether its host is gone; a file that is no entry belongs to nobody alive."""
    mark, folder, dead = f"{VARIABLE}={path.stem.rpartition('-')[2]}", Path(), True
    with contextlib.suppress(ValueError, KeyError, TypeError):
        entry = json.loads(path.read_text())
        owner = int(entry["owner"]["pid"]), entry["owner"]["start_time"]
        # An engine may have written it: no other process is killed, and no other folder removed, by its word.
        if _MARK.fullmatch(str(entry["mark"])):
            mark, folder = entry["mark"], Path(str(entry.get("folder", "")))
            # Of processes of another host or container that shares the home nothing is known here.
            dead = entry["owner"].get("host", _host()) == _host() and start_time(owner[0]) != owner[1]
    if folder.name != _folder_name(mark):
        folder = Path(tempfile.gettempdir()) / _folder_name(mark)
    return Note(path=path, mark=mark, folder=folder), dead


def _host() -> str:
    """With the container: within both, a pid means one process."""
    return f"{socket.gethostname()}/{namespace()}"


def _folder_name(mark: str) -> str:
    # Short: engines make sockets in it, whose paths may not be long.
    return f"tunesmith-engine-{mark.rpartition('=')[2][:12]}"


def _folder(home: Path) -> Path:
    return home / "run" / "engines"


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
