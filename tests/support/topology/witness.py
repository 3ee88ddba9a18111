"""A witness to every measurement on a host: it notes two at the same time, however short and whoever does them.

A plugin of the engines (``TUNESMITH_ENGINE_PLUGINS``): whatever TVM times, in whichever process, is timed under a lock
of the kernel's, which is tried and never waited for. The kernel gives up the lock with its holder, also a killed one,
so nothing is taken for a measurement that has ended. It has nothing to do with the lock that keeps measurements apart.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = "TUNESMITH_TEST_WITNESS"
"""Environment variable: a folder for each host."""

_MEASURED, _TWO = "measured.log", "two-at-once.log"


@contextmanager
def watched() -> Iterator[None]:
    """Around one measurement."""
    folder = Path(os.environ[FOLDER])
    with (folder / "witness.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _note(folder / _MEASURED)
        except BlockingIOError:
            _note(folder / _TWO)
        yield


def measured(folder: Path) -> int:
    """How many measurements there were."""
    return len(_lines(folder / _MEASURED))


def two_at_once(folder: Path) -> int:
    """How many were begun while another process was at one."""
    return len(_lines(folder / _TWO))


def register(_registry: Any) -> None:
    """As an engine calls it: from now on this process's measurements are watched."""
    from tvm.runtime import Module

    timer_of = Module.time_evaluator
    if getattr(timer_of, "is_watched", False):
        return

    def time_evaluator(module: Any, *arguments: Any, **options: Any) -> Callable[..., Any]:
        timer = timer_of(module, *arguments, **options)

        def timed(*values: Any) -> Any:
            with watched():
                return timer(*values)

        return timed

    time_evaluator.is_watched = True  # type: ignore[attr-defined]
    Module.time_evaluator = time_evaluator


def _note(path: Path) -> None:
    # One write of one line: whole, whoever else appends.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, f"{time.monotonic():.6f} {os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
