"""The tiers of tests, and how they share a machine.

* unit: functions and classes by themselves.
* integration: a whole API or a job's whole pipeline, in this process.
* contract: against one real thing, such as an engine, a server or a browser.
* system: the whole service, faults, deployment.

A test's tier is the folder that it lies in. One of the first two that asks for an engine or a server, or is marked
``contract``, belongs to that tier all the same: the same query runs on SQLite in one and on PostgreSQL in the other.
Tests of the first two tiers start no process, and fail if they do.
"""

from __future__ import annotations

import fcntl
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

TIERS = ("unit", "integration", "contract", "system")
_IN_PROCESS = TIERS[:2]
_TESTS = Path(__file__).parents[1]
_REAL = {"postgresql_server", "redis_server", "s3_server"}
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}
_GATE, _LOCK = _TESTS / "conftest.py", Path(__file__)
"""Files of the checkout that are locked, so that nothing has to be made or removed."""


class _Guard:
    """Notes which processes a test starts."""

    def __init__(self) -> None:
        self.started: list[str] | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.started is not None and event in _STARTS:
            self.started.append(f"{event} {arguments[:2]}"[:200])


_guard = _Guard()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier; the longest tiers come first, so that two workers end together."""
    for item in items:
        item.add_marker(_tier(item))
    items.sort(key=lambda item: -TIERS.index(_folder(item)))


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and never among what was imported: that takes a tenth of the unit tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


def _tier(item: pytest.Item) -> str:
    folder = _folder(item)
    needs_more = _REAL & set(getattr(item, "fixturenames", ())) or any(
        item.get_closest_marker(name) for name in ("engine", "browser", "contract")
    )
    return "contract" if folder in _IN_PROCESS and needs_more else folder


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for the turn outside the test's own time limit."""
    _guard.started = [] if any(map(item.get_closest_marker, _IN_PROCESS)) else None
    with _turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test of the first tiers that starts a process, in its fixtures or by itself."""
    answer = yield
    assert not _guard.started, f"this tier's tests start no process; move it to tests/contract: {_guard.started}"
    return answer


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
