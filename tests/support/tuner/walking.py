"""Attempts to change files, none of which changes one that other programs could miss. Standard library only.

``python walking.py FOLDER…`` prints as JSON what succeeded below these folders.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_ENOUGH = 100


def changed(roots: list[str]) -> dict[str, object]:
    """Try every path below the folders, following the links among them; return how many were tried and the first
    successful attempts, as ``ATTEMPT PATH``."""
    tried, found = 0, []
    for path in _paths(roots):
        tried += 1
        found += [f"{name} {path}" for name in _attempts(path)]
        if len(found) > _ENOUGH:
            break
    return {"tried": tried, "changed": found}


def _paths(roots: list[str]) -> Iterator[Path]:
    seen: set[str] = set()
    folders = list(roots)
    while folders:
        folder = str(Path(folders.pop()).resolve())
        if folder in seen:
            continue
        seen.add(folder)
        yield Path(folder)
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if entry.is_dir():
                    folders.append(entry.path)
                elif not entry.is_symlink():
                    yield Path(entry.path)


def _attempts(path: Path) -> Iterator[str]:
    try:
        status = path.stat()
    except OSError:
        return
    attempts: dict[str, Callable[[], object]]
    if stat.S_ISDIR(status.st_mode):
        probe = path / f".tunesmith-probe-{os.getpid()}"
        attempts = {
            "create": lambda: (probe.touch(exist_ok=False), probe.unlink()),
            "mkdir": lambda: (probe.mkdir(), probe.rmdir()),
            # Fails if the folder is not empty, but only after the sandbox was asked.
            "rmdir": path.rmdir,
        }
    elif stat.S_ISREG(status.st_mode):
        attempts = {
            "overwrite": lambda: os.close(os.open(path, os.O_WRONLY)),
            "append": lambda: path.open("ab").close(),
            "truncate": lambda: os.truncate(path, status.st_size),
            "rename": lambda: path.rename(path),
        }
    else:
        return
    attempts["chmod"] = lambda: path.chmod(stat.S_IMODE(status.st_mode))
    attempts["chown"] = lambda: os.chown(path, status.st_uid, status.st_gid)
    attempts["utime"] = lambda: os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                yield name
        else:
            yield name


if __name__ == "__main__":
    sys.stdout.write(json.dumps(changed(sys.argv[1:])))
