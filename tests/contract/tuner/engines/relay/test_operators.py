"""Operators that TVM's own importer lacks or reads wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("opset", "rank", "modes"),
    [
        (16, 4, ("bilinear", "nearest", "bicubic")),
        (20, 4, ("linear", "nearest", "cubic")),
        (20, 5, ("linear", "nearest")),
    ],
)
def test_grid_sample_agrees_with_the_reference(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    tmp_path: Path,
    opset: int,
    rank: int,
    modes: Sequence[str],
) -> None:
    (tmp_path / "m.onnx").write_bytes(models.grid_samples(opset=opset, rank=rank, modes=modes))
    prepared = {"path": str(tmp_path / "m.onnx"), "input_shapes": {}, "out_path": str(tmp_path / "prepared.onnx")}
    answer = reference.request("prepare", prepared, timeout=60)
    made = {"inputs": answer["inputs"], "seeds": [3], "out_dir": str(tmp_path)}
    [inputs] = reference.request("make_inputs", made, timeout=60)["paths"]
    expected = {"path": str(tmp_path / "prepared.onnx"), "inputs": inputs, "outputs": str(tmp_path / "e.npz")}
    reference.request("run", {**expected, "threads": 1}, timeout=60)
    build = {**place, "model": str(tmp_path / "prepared.onnx"), "records": None, "out_dir": str(tmp_path / "b")}
    relay.request("compile", build, timeout=200)
    run = {"bundle": str(tmp_path / "b"), "inputs": inputs, "outputs": str(tmp_path / "a.npz"), "threads": 1}
    relay.request("run", run, timeout=60)
    pair = {"expected": str(tmp_path / "e.npz"), "actual": str(tmp_path / "a.npz")}
    outputs = reference.request("compare", pair, timeout=60)["outputs"]
    assert len(outputs) == len(modes) * 3
    assert [output["output"] for output in outputs if not output["passed"]] == []
