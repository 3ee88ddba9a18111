from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.tuner.engines.asking import trial_lines
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("tuner", [None, "autotvm", "ansor"])
def test_fp16_agrees_with_the_reference_within_its_tolerance(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    inputs: list[Path],
    tmp_path: Path,
    tuner: str | None,
) -> None:
    half = {**place, "tuner": tuner, "precision": "fp16", "options": {}}
    lines = trial_lines(relay, half, tmp_path) if tuner else []
    (tmp_path / "records").write_text("".join(f"{line}\n" for line in lines))
    params = {**half, "records": str(tmp_path / "records"), "out_dir": str(tmp_path / "bundle")}
    built = relay.request("compile", params, timeout=120)
    assert bool(built["records"]) == bool(tuner)
    run = {"bundle": str(tmp_path / "bundle"), "inputs": str(inputs[0]), "outputs": str(tmp_path / "a.npz")}
    answer = relay.request("run", {**run, "threads": 1}, timeout=60)
    # Inputs went in as float32, too.
    assert answer["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 5]}]
    expected = {"path": place["model"], "inputs": str(inputs[0]), "outputs": str(tmp_path / "e.npz"), "threads": 1}
    reference.request("run", expected, timeout=60)
    pair = {"expected": str(tmp_path / "e.npz"), "actual": str(tmp_path / "a.npz"), "precision": "fp16"}
    [output] = reference.request("compare", pair, timeout=60)["outputs"]
    assert output["passed"], output
    # Eleven bits of a float16: what computed in float32 would come nearer.
    assert output["max_abs"] > 1e-6


def test_autotvm_knows_workloads_by_their_dtype(
    relay: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]]
) -> None:
    half = relay.request("extract", {**place, "precision": "fp16"}, timeout=120)["tasks"]
    assert len(half) == len(tasks)
    assert all("float16" in task["workload_key"] for task in half)
    assert not {task["workload_key"] for task in half} & {task["workload_key"] for task in tasks}


def test_an_unknown_precision_is_refused(relay: EngineSession, place: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("compile", {**place, "precision": "int3", "out_dir": str(tmp_path)}, timeout=60)
    assert caught.value.engine_code == "invalid_option"
