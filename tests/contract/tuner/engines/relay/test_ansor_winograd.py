"""Ansor's own convolutions by minimal filtering, beside the templates of ours that do the same for AutoTVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside
from tests.support import models
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

MEASURE = {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 20.0}
SPEC = {"name": "x", "dtype": "float32", "shape": [1, 8, 9, 9]}
LOST = """
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay.ansor import networks
from tuner.engines.relay.templates import dispatching
import sys
dispatching.add(dispatching.Template(
    operators=("nn.dense",), task="none", takes=lambda *_: [][0], offer=None, alter=None,
))
params = {"model": sys.argv[1] + "/model.onnx", "options": {"layout": "NCHW"}}
try:
    networks.extract(params, TARGET)
except EngineFailure as failure:
    print(json.dumps([failure.code, failure.message]))
"""


def test_networks_are_tuned_and_built_with_them(
    relay: EngineSession, reference: EngineSession, target: str, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(models.wide_convolution())
    place = {"model": str(tmp_path / "model.onnx"), "target": target, "threads": 1, "tuner": "ansor", "rewrite": True}
    tasks = relay.request("extract", {**place, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    assert sorted(task["description"].split(" ")[0] for task in tasks) == [
        "conv2d",
        "conv2d_winograd_without_weight_transform+add+relu",
    ]
    records = _tune(relay, place, tasks, tmp_path)
    params = {**place, "records": str(records), "out_dir": str(tmp_path / "bundle")}
    built = relay.request("compile", params, timeout=120)
    assert len(built["records"]) == 2
    request = {"inputs": [SPEC], "seeds": [1], "out_dir": str(tmp_path / "inputs")}
    [path] = reference.request("make_inputs", request, timeout=60)["paths"]
    run = {"inputs": path, "threads": 1}
    relay.request("run", {**run, "bundle": params["out_dir"], "outputs": str(tmp_path / "a.npz")}, timeout=60)
    reference.request("run", {**run, "path": place["model"], "outputs": str(tmp_path / "e.npz")}, timeout=60)
    pair = {"expected": str(tmp_path / "e.npz"), "actual": str(tmp_path / "a.npz")}
    [output] = reference.request("compare", pair, timeout=60)["outputs"]
    assert output["passed"], output


def _tune(relay: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]], folder: Path) -> Path:
    lines: list[str] = []

    def keep(kind: str, data: dict[str, Any]) -> None:
        if kind == "trial":
            assert data["error"] is None, data
            lines.append(data["schedule"] + "\n")

    for task in tasks:
        request = {
            **place, "workload_key": task["workload_key"], "task": str(folder / task["definition"]), "trials": 1,
            "first_trial": 0, "measure": MEASURE, "history": None, "journal": str(folder / "j"), "seconds": None,
        }  # fmt: skip
        relay.request("tune", request, timeout=120, on_event=keep)
    (folder / "records").write_text("".join(lines))
    return folder / "records"


def test_no_task_is_extracted_where_one_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(models.dense_network())
    code, message = inside(LOST, tmp_path)
    assert code == "compile_failed"
    assert message == "TVM cannot extract tasks: IndexError: list index out of range"
