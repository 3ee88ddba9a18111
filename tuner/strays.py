"""Engines that outlived the host process that started them.

Every session notes itself in a file under ``<home>/run/engines`` and gives its engine an environment variable of its
own. Normally an engine ends with its host; when both were killed in an unlucky order, or a child left the engine's
process group, ``sweep`` finds what is left by that variable.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from tuner import processes

VARIABLE = "TUNESMITH_ENGINE_SESSION"


@dataclass(frozen=True, kw_only=True)
class Note:
    """A session's entry; ``mark`` is unique, so no reused pid can be taken for it."""

    path: Path | None
    mark: str

    @property
    def environment(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        return {name: value}

    def remove(self) -> None:
        if self.path:
            self.path.unlink(missing_ok=True)


def note(engine: str, home: Path | None) -> Note:
    """Written before the engine starts. Without a home there is no file, and nothing to sweep later."""
    token = secrets.token_hex(16)
    mark = f"{VARIABLE}={token}"
    if home is None:
        return Note(path=None, mark=mark)
    path = _folder(home) / f"{engine}-{token}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = {"pid": os.getpid(), "start_time": processes.start_time(os.getpid())}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"mark": mark, "owner": owner}))
    partial.replace(path)
    return Note(path=path, mark=mark)


def sweep(home: Path) -> list[int]:
    """Kill what engine sessions of dead hosts left behind; returns the pids. Safe beside living sessions."""
    orphaned: dict[str, Path] = {}
    for path in sorted(_folder(home).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):
            mark, dead = _read(path)
            if dead:
                orphaned[mark] = path
    killed = [pid for pid in processes.marked(set(orphaned)) if processes.kill(pid)]
    for path in orphaned.values():
        path.unlink(missing_ok=True)
    return killed


def _read(path: Path) -> tuple[str, bool]:
    """The session's mark and whether its host is gone; a file that is no entry belongs to nobody alive."""
    try:
        entry = json.loads(path.read_text())
        mark, owner = str(entry["mark"]), entry["owner"]
        return mark, processes.start_time(int(owner["pid"])) != owner["start_time"]
    except (ValueError, KeyError, TypeError):
        return f"{VARIABLE}={path.stem.rpartition('-')[2]}", True


def _folder(home: Path) -> Path:
    return home / "run" / "engines"
