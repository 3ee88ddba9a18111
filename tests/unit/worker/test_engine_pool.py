"""The engines of one job."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from domain.ports import Engine
from tests.support.tuner.fakes import FakeEngine
from tests.support.worker.scripted import Script
from worker.engines import EngineOptions, EnginePool


@dataclass
class _Together(Script):
    """Engines that end only once as many others are ending."""

    barrier: threading.Barrier

    def start(self, name: str, given: EngineOptions) -> Engine:
        engine = FakeEngine({})

        def close() -> None:
            self.barrier.wait(10)

        cast(Any, engine).close = close
        return engine


def test_all_engines_end_at_the_same_time(tmp_path: Path) -> None:
    source = _Together(barrier=threading.Barrier(3))
    pool = EnginePool(source, log=tmp_path / "log", folder=tmp_path, canceled=lambda: False)
    for role in ("main", "untuned", "tuned"):
        pool.get("relay", role=role)
    pool.close_all()
    assert not source.barrier.broken
    assert not pool.is_alive("relay", role="main")
