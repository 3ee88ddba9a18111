"""Operators that TVM's own importer converts to wrong networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

SELECTIONS: dict[str, tuple[dict[str, Any], range]] = {
    "nothing": ({"least": 1e9}, range(1)),
    "none wanted": ({"most": 0}, range(1)),
    "fewer than the limit": ({"most": 20}, range(1, 20)),
    "exactly the limit": ({"most": 5, "overlap": 0.99}, range(5, 6)),
    "more than there are boxes": ({"most": 1000, "overlap": 1.0, "least": -1e9}, range(20, 21)),
    "every overlap": ({"most": 20, "overlap": 0.0}, range(1, 20)),
    "classes and batches": ({"batches": 2, "classes": 3, "most": 4, "centered": 0}, range(6, 25)),
    "negative scores": ({"batches": 2, "classes": 3, "least": -0.5, "centered": 0}, range(6, 49)),
}
"""Options of a selection, and how many boxes it may choose."""


@pytest.mark.parametrize("case", SELECTIONS)
def test_boxes_are_selected_as_onnx_runtime_does(
    case: str, relax_twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    options, rows = SELECTIONS[case]
    prepared, specs = asking.prepare(reference, models.suppressed(**options), tmp_path)
    place = {**relax_twin.place, "model": str(prepared)}
    relax_twin.session.request("extract", {**place, "out_dir": str(tmp_path / "tasks")}, timeout=120)
    params = {**place, "records": None, "out_dir": str(tmp_path / "built")}
    relax_twin.session.request("compile", params, timeout=120)
    inputs = asking.make_inputs(reference, specs, tmp_path / "inputs")
    actual = asking.run(relax_twin.session, tmp_path / "built", inputs, tmp_path / "actual.npz")
    outputs = asking.compare_with_model(reference, tmp_path / "model.onnx", inputs, actual)
    assert len(outputs) == 2
    assert all(output["passed"] for output in outputs), outputs
    script = "import sys, numpy; print(len(numpy.load(sys.argv[1])['chosen']))"
    assert int(asking.inside("onnx", script, actual)) in rows
