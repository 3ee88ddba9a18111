"""Ansor's own convolutions by minimal filtering, beside the templates of ours that do the same for AutoTVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside
from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

SPEC = {"name": "x", "dtype": "float32", "shape": [1, 8, 9, 9]}
LOST = """
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay.ansor import networks
from tuner.engines.relay.templates import dispatching
import sys
dispatching.add(dispatching.Template(
    operators=("nn.conv2d",), task="none", takes=lambda *_: [][0], offer=None, alter=None,
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
    records = asking.write_lines(tmp_path / "records", asking.trial_lines(relay, place, tmp_path, trials=1))
    built = relay.request("compile", {**place, "records": records, "out_dir": str(tmp_path / "bundle")}, timeout=120)
    assert len(built["records"]) == 2
    inputs = asking.make_inputs(reference, [SPEC], tmp_path, seed=1)
    assert asking.agrees(relay, tmp_path / "bundle", reference, place["model"], inputs, tmp_path)


def test_no_task_is_extracted_where_one_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(models.wide_convolution())
    code, message = inside(LOST, tmp_path)
    assert code == "compile_failed"
    assert message == "TVM cannot extract tasks: IndexError: list index out of range"
