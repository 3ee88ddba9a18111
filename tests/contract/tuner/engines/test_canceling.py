"""A canceled request of a real engine ends at once, with all processes that it uses."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from domain.ports import Canceled
from tests.contract.tuner.engine_processes import await_end
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, start

pytestmark = pytest.mark.engine

MOST_SECONDS = 1.5
"""A cancellation may take two, and half a second of these passes until the worker sees it."""


def _request(twin: Twin, method: str, inputs: list[Path], folder: Path) -> dict[str, Any]:
    return {
        "tune": {
            **twin.workload(twin.tasks[0]), "trials": 500, "first_trial": 0, "seconds": None, "history": None,
            "measure": asking.MEASURE, "spool": str(folder / "spool.jsonl"),
        },
        "compile": {**twin.place, "tuner": None, "records": None, "out_dir": str(folder / "build")},
        "time": {"bundle": str(twin.untuned), "inputs": str(inputs[0]), "threads": 1, "number": 10**7, "repeat": 9},
    }[method]  # fmt: skip


def _group(pid: int) -> set[int]:
    """Return all processes of an engine's group, with the engine."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == pid:
                    found.add(int(entry.name))
            except ProcessLookupError:
                continue
    return found


@pytest.mark.parametrize(("method", "after", "processes"), [("tune", 0.5, 3), ("compile", 0.2, 2), ("time", 1.0, 2)])
def test_a_canceled_request_ends_at_once(
    twin: Twin, inputs: list[Path], tmp_path: Path, engine_logs: Path, method: str, after: float, processes: int
) -> None:
    # The engine and its watcher, and in a round the server of the processes that build and measure.
    params = _request(twin, method, inputs, tmp_path)
    with start(twin.name, engine_logs / f"canceled-{twin.name}.log") as engine:
        began, canceled_at, seen = time.monotonic(), 0.0, set[int]()

        def canceled() -> bool:
            nonlocal canceled_at
            seen.update(_group(engine.pid))
            wanted = time.monotonic() > began + after and len(seen) >= processes
            if wanted and not canceled_at:
                canceled_at = time.monotonic()
            return wanted

        with pytest.raises(Canceled):
            engine.request(method, params, timeout=100, canceled=canceled)
        assert time.monotonic() - canceled_at < MOST_SECONDS
        # Killed children wait for init to reap them.
        await_end(list(seen))
