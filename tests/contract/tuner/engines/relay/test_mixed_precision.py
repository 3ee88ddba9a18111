from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

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
    lines = asking.trial_lines(relay, half, tmp_path, trials=1) if tuner else []
    records = asking.write_lines(tmp_path / "records", lines)
    built = relay.request("compile", {**half, "records": records, "out_dir": str(tmp_path / "b")}, timeout=120)
    assert bool(built["records"]) == bool(tuner)
    actual = asking.run(relay, tmp_path / "b", inputs[0], tmp_path / "a.npz")
    # Inputs went in and outputs came out as float32.
    [output] = asking.compare_with_model(reference, place["model"], inputs[0], actual, precision="fp16")
    assert (output["passed"], output["dtype"]) == (True, "float32"), output
    # Eleven bits of a float16: what computed in float32 would come nearer.
    assert output["max_abs"] > 1e-6


def test_autotvm_knows_workloads_by_their_dtype(
    relay: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]]
) -> None:
    half = relay.request("extract", {**place, "precision": "fp16"}, timeout=120)["tasks"]
    assert len(half) == len(tasks)
    assert all("float16" in task["workload_key"] for task in half)
    assert not {task["workload_key"] for task in half} & {task["workload_key"] for task in tasks}
