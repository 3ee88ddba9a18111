"""What the system says of the processes behind sessions."""

from __future__ import annotations

import gc
import time
from pathlib import Path

from tuner.host import orphans
from tuner.host.session import EngineSession


def pid_of(engine: EngineSession) -> int:
    return int(engine.request("echo", {}, timeout=10)["pid"])


def gone(pids: list[int], within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(orphans.start_time(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def open_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))
