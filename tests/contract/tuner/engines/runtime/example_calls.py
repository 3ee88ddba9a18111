"""What forked and started processes are asked for in tests, importable without any engine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

IMPORTED_BY = os.getpid()


def set_up() -> None:
    os.environ["TUNESMITH_TEST_SET_UP"] = "1"


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def whoami() -> tuple[int, int, str | None, str | None]:
    """This process, the one that imported this module, and what its environment says."""
    return os.getpid(), IMPORTED_BY, os.environ.get("TUNESMITH_TEST_SET_UP"), os.environ.get("TUNESMITH_TEST_VALUE")


def die(status: int) -> None:
    os._exit(status)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def outlive(path: str, kills: int) -> int:
    """Kill the fork server, and so this process, in the first ``kills`` calls; return the number of calls."""
    with Path(path).open("a+") as file:
        file.write(".")
        calls = file.tell()
    if calls <= kills:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return calls


FUNCTIONS = {"sleep": sleep, "whoami": whoami, "die": die, "kill": kill, "outlive": outlive}
