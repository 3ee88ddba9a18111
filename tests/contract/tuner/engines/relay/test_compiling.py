from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.mark.smoke
def test_a_silently_wrong_import_is_caught_by_comparing(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    """TVM 0.19 reads opset-18 ReduceMean as if its axes were an attribute that is missing."""
    model, specs = asking.prepare(reference, models.reduce_mean_18(), tmp_path)
    fed = asking.make_inputs(reference, specs, tmp_path)
    relay.request("compile", {**place, "model": str(model), "out_dir": str(tmp_path / "b")}, timeout=120)
    actual = asking.run(relay, tmp_path / "b", fed, tmp_path / "a.npz")
    [output] = asking.compare_with_model(reference, model, fed, actual)
    assert not output["passed"]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("llvm -mcpu=znver9", "znver3"),
        ("llvm -mcpu=skylake-avx51", "skylake-avx512"),
        ("llvm -mcpu=skylake-avx512 -mattr=+avx51", "avx512f"),
        ("llvm -mattr=avx2", "+avx2"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortexa72", "cortex-a72"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3", None),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+noen", "neon"),
        ("llvm -mtriple=aarhc64-linux-gnu", "aarch64"),
        ("llvm -mtriple=aarch64-lnux-gnu", "linux"),
        ("llvm -colour=red", None),
    ],
)
def test_an_unknown_target_gets_near_matches(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path, text: str, near: str | None
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("compile", {**place, "target": text, "out_dir": str(tmp_path)}, timeout=60)
    assert caught.value.engine_code == "unknown_target"
    assert near is None or near in caught.value.details["near_matches"]


@pytest.mark.parametrize(
    ("text", "told"),
    [("cuda -arch=sm_90", "metaschedule"), ("llvm -mtriple=riscv64-linux-gnu", "aarch64"), ("vulkan", None)],
)
def test_an_unsupported_target_is_told_from_an_unknown_one(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path, text: str, told: str | None
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("compile", {**place, "target": text, "out_dir": str(tmp_path)}, timeout=60)
    assert caught.value.engine_code == "unsupported_target"
    assert told is None or (caught.value.hint and told in caught.value.hint)
