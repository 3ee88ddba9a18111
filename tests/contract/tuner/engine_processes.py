"""What the system says of the processes behind sessions."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.support.waiting import until
from tuner.host import orphans
from tuner.host.session import EngineSession


def pid_of(engine: EngineSession) -> int:
    return int(engine.request("echo", {}, timeout=10)["pid"])


def await_end(pids: list[int]) -> None:
    until(lambda: not any(orphans.start_time(pid) for pid in pids), seconds=5)


def fork_servers(engine: EngineSession) -> dict[int, list[int]]:
    """The fork servers of an engine, and the processes that each has forked."""
    named = [pid for pid in _children(engine.pid) if b"\0forking\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return {pid: _children(pid) for pid in named}


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))
