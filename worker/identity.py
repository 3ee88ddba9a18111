"""Worker ids: which process one names, and whether that process is alive."""

from __future__ import annotations

import os
import socket

from domain.workers import Worker
from tuner.host import orphans


def own_id() -> str:
    """``host:pid:start``; ``start`` has the clock tick at which the process began, and its pid namespace."""
    return f"{hostname()}:{os.getpid()}:{_start(os.getpid())}"


def hostname() -> str:
    return socket.gethostname()


def is_here(worker: Worker) -> bool:
    """Whether it names a process of this host and this container."""
    return worker.hostname == hostname() and worker.id.endswith(f".{orphans.namespace()}")


def is_dead(worker: Worker) -> bool:
    """Whether the process has certainly ended; false for processes of other hosts and containers."""
    if not is_here(worker):
        return False
    return worker.id != f"{worker.hostname}:{worker.pid}:{_start(worker.pid)}"


def _start(pid: int) -> str:
    return f"{orphans.start_time(pid)}.{orphans.namespace()}"
