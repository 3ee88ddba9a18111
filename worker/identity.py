"""Which process a worker id names, and whether that process still lives."""

from __future__ import annotations

import os
import socket

from domain.workers import Worker
from tuner.host import orphans


def own_id() -> str:
    """``host:pid:start``; the start tells the process's clock tick and the namespace in which its pid counts."""
    return f"{hostname()}:{os.getpid()}:{_start(os.getpid())}"


def hostname() -> str:
    return socket.gethostname()


def is_here(worker: Worker) -> bool:
    """Whether it is a process of this host, and of the container that this process is in."""
    return worker.hostname == hostname() and worker.id.endswith(f".{orphans.namespace()}")


def is_dead(worker: Worker) -> bool:
    """Whether the process is surely gone; of processes elsewhere nothing is known."""
    if not is_here(worker):
        return False
    return worker.id != f"{worker.hostname}:{worker.pid}:{_start(worker.pid)}"


def _start(pid: int) -> str:
    return f"{orphans.start_time(pid)}.{orphans.namespace()}"
