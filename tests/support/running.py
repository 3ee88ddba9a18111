"""How tests share a machine: several pytest workers, and timing-sensitive tests alone."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_GATE, _LOCK = Path(__file__).parents[1] / "conftest.py", Path(__file__)
"""Files of the checkout that are locked, so that nothing has to be made or removed."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for the turn outside the test's own time limit."""
    with _turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(*, alone: bool) -> Generator[None, None, None]:
    """Hold a lock that many tests share or one test has for itself.

    Every test passes the gate first. A test that waits to be alone holds the gate: no other test starts before it.
    """
    with _GATE.open() as gate, _LOCK.open() as lock:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # A process that the test forked may hold the same open file.
            fcntl.flock(lock, fcntl.LOCK_UN)
