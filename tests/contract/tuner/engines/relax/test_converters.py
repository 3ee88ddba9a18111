"""Operators that TVM's own importer converts to wrong networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
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
    "more than are compared at once": ({"count": 300, "most": 300, "overlap": 0.6, "centered": 0}, range(65, 200)),
    "without a least score": ({"most": 20, "overlap": 0.9, "least": None}, range(10, 21)),
    "negative scores": ({"batches": 2, "classes": 3, "least": -0.5, "centered": 0}, range(6, 49)),
}
"""Options of a selection, and how many boxes it may choose."""


@pytest.mark.parametrize("case", SELECTIONS)
def test_boxes_are_selected_as_onnx_runtime_does(
    case: str, relax: EngineSession, place: dict[str, Any], reference: EngineSession, tmp_path: Path
) -> None:
    options, rows = SELECTIONS[case]
    outputs = asking.build_and_compare(relax, place, reference, models.suppressed(**options), tmp_path)
    assert [output["passed"] for output in outputs] == [True, True], outputs
    extracted = {**place, "model": str(tmp_path / "prepared.onnx"), "out_dir": str(tmp_path / "tasks")}
    relax.request("extract", extracted, timeout=120)
    script = "import sys, numpy; print(len(numpy.load(sys.argv[1])['chosen']))"
    assert int(asking.inside("onnx", script, tmp_path / "actual.npz")) in rows
