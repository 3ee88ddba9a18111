from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tuner.engines.fixtures import Twin

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("target", "lanes"),
    [
        ("llvm -mcpu=znver4", 16),
        ("llvm -mcpu=znver3", 8),
        ("llvm", 4),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", 4),
        ("llvm -mcpu=nonesuch", None),
        ("cuda -arch=sm_90", None),
    ],
)
def test_check_tells_the_lanes_of_the_targets_vectors(
    twin: Twin, prepared: Path, target: str, lanes: int | None
) -> None:
    answer = twin.session.request("check", {"model": str(prepared), "target": target, "threads": 1}, timeout=60)
    assert (answer["operators"]["Conv"], answer["lanes"]) == (2, lanes)
    assert "lanes" not in twin.session.request("check", {"model": str(prepared)}, timeout=60)
