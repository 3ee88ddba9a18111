"""What a stage may use, in numbers."""

from __future__ import annotations

import pytest

from domain.jobs import Stage
from domain.targets import Target
from worker.pipeline import stage_memory

GIB = 1024**3


@pytest.mark.parametrize(("stage", "gib"), [(Stage.IMPORT, 4), (Stage.COMPILE, 4), (Stage.TUNE, 6), (Stage.VERIFY, 3)])
def test_a_limit_is_for_any_model_for_each_core_and_for_this_model(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, gib: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    found = stage_memory.limit(stage, 5 * GIB, Target(text="llvm -mcpu=znver3", threads=2))
    assert found == (gib + 1 + 5) * GIB


@pytest.mark.parametrize(("model_bytes", "target"), [(None, "llvm"), (GIB, "cuda -arch=sm_90")])
def test_without_a_measure_or_with_a_driver_the_settings_decide(model_bytes: int | None, target: str) -> None:
    assert stage_memory.limit(Stage.TUNE, model_bytes, Target(text=target, threads=1)) is None
