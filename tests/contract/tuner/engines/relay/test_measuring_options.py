"""Every option of LocalBuilder and LocalRunner that a job can give reaches the measurement."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.tuner.engine_processes import fork_servers
from tests.support.tuner.engines.asking import tune
from tests.support.tuner.engines.fixtures import start
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine(engine_logs: Path) -> Iterator[EngineSession]:
    """One whose processes nobody else starts."""
    with start("relay", engine_logs / "relay-measuring.log") as session:
        yield session


def _round(
    engine: EngineSession, place: dict[str, Any], key: str, folder: Path, trials: int, **options: Any
) -> tuple[list[dict[str, Any]], float]:
    """The trials of a round, and the seconds it took."""
    measure = {"number": 1, "repeat": 1, "min_repeat_ms": 0, "timeout": 20.0, **options}
    started = time.monotonic()
    _, told = tune(engine, {**place, "workload_key": key}, folder / "spool", trials=trials, measure=measure)
    assert all(trial["error"] is None for trial in told)
    return told, time.monotonic() - started


def test_options_shape_a_round(
    engine: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]], tmp_path: Path
) -> None:
    key = tasks[0]["workload_key"]
    # The first round starts the processes.
    [trial], _ = _round(engine, place, key, tmp_path, 1, repeat=5, n_parallel=1)
    assert len(trial["latencies"]) == 3
    # One builder and one that measures.
    assert _forked(engine) == 2
    _, seconds = _round(engine, place, key, tmp_path, 2, n_parallel=1, cooldown_interval=0.6)
    assert seconds > 1.2
    # A task of which no best is known yet, so that its first candidate is measured as long as was asked for.
    _, seconds = _round(engine, place, tasks[1]["workload_key"], tmp_path, 1, n_parallel=1, min_repeat_ms=400)
    assert seconds > 0.4
    _round(engine, place, key, tmp_path, 1, n_parallel=3)
    assert _forked(engine) == 4


def _forked(engine: EngineSession) -> int:
    """The number of processes that build and measure."""
    return sum(map(len, fork_servers(engine).values()))
