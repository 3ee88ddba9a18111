"""Building for a GPU that this machine may lack. What runs on a GPU is not proven here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, start
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


@pytest.fixture(scope="module")
def gpu_place(place: dict[str, Any]) -> dict[str, Any]:
    return {**place, "target": "cuda -arch=sm_90"}


@pytest.mark.skipif(NVCC is None, reason="no CUDA compiler here; the other half of this is tested by the next test")
def test_a_gpu_build_needs_no_gpu(relax: EngineSession, gpu_place: dict[str, Any], tmp_path: Path) -> None:
    answer = relax.request("compile", {**gpu_place, "out_dir": str(tmp_path)}, timeout=280)
    assert answer["files"] == ["mod.so", "mod.json", "needs-tvm.txt"]
    # The kernels for that architecture are in the library.
    assert b"sm_90" in (tmp_path / "mod.so").read_bytes()
    if not relax.hello["gpu"]:
        assert asking.refusal(relax, "run", {"bundle": str(tmp_path), "threads": 1}).engine_code == "no_device"


def test_a_missing_compiler_is_told(
    gpu_place: dict[str, Any], tmp_path: Path, engine_logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "nvcc").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(kept))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "no-cuda"))
    with start("relax", engine_logs / "relax-no-nvcc.log") as engine:
        refused = asking.refusal(engine, "compile", {**gpu_place, "out_dir": str(tmp_path)})
    assert refused.engine_code == "compiler_missing"


def test_tasks_of_a_gpu_are_others(
    relax: EngineSession, gpu_place: dict[str, Any], tasks: list[dict[str, Any]], tmp_path: Path
) -> None:
    found = relax.request("extract", {**gpu_place, "out_dir": str(tmp_path)}, timeout=60)["tasks"]
    assert len(found) == len(tasks)
    # On a GPU convolutions stay as the model has them.
    assert found[0]["description"] == "conv2d+add+relu 1×3×16×16 ∗ 8×3×3×3 → 1×8×16×16"


def test_tuning_without_a_gpu_is_refused(relax_twin: Twin, gpu_place: dict[str, Any], tmp_path: Path) -> None:
    if relax_twin.session.hello["gpu"]:
        pytest.skip("this machine has a GPU")
    params = {**relax_twin.workload(relax_twin.tasks[0]), **gpu_place}
    with pytest.raises(errors.EngineRequestFailed) as caught:
        asking.tune(relax_twin.session, params, tmp_path / "j", trials=1)
    assert caught.value.engine_code == "no_device"
