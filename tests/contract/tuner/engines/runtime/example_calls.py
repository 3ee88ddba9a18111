"""What forked and started processes are asked for in tests, importable without any engine."""

from __future__ import annotations

import os
import time

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


FUNCTIONS = {"sleep": sleep, "whoami": whoami, "die": die}
