"""Detectors, whose boxes are as many as a threshold and their overlaps leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

NAMES = ("some", "all", "none", "without a branch", "among all", "none among all", "by box", "by box, the best")
LAYOUTS = """
import json, re, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
build = lowering.Lowering.of({"model": sys.argv[1], "target": "llvm -mcpu=znver5", "threads": 1, "rewrite": False})
functions = lowering.lower(importing.load(sys.argv[1]), build).functions_items()
print(json.dumps(sorted(re.findall("conv2d_n[a-z]*", "".join(function.script() for _, function in functions)))))
"""


@pytest.fixture(scope="module")
def detectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detectors")
    program = "import sys; from tests.support.tuner.engines.onnx import detectors; detectors.write(sys.argv[1])"
    asking.inside("onnx", program, folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_boxes_are_those_of_onnx_runtime(
    name: str, detectors: Path, relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    content = (detectors / f"{name}.onnx").read_bytes()
    outputs = asking.build_and_compare(relax, place, reference, content, tmp_path)
    assert [output["passed"] for output in outputs] == [True] * 3
    assert all((output["elements"] == 0) == ("none" in name) for output in outputs)
    # A sorting that is a function by itself is no task, and keeps none from being found.
    extracted = {**place, "model": str(tmp_path / "prepared.onnx"), "out_dir": str(tmp_path / "tasks")}
    assert relax.request("extract", extracted, timeout=120)["tasks"]


@pytest.mark.parametrize("name", ["some", "by box, the best"])
def test_convolutions_have_their_layout(name: str, detectors: Path, reference: EngineSession, tmp_path: Path) -> None:
    """Results of open sizes keep no operator from it."""
    model, _ = asking.prepare(reference, (detectors / f"{name}.onnx").read_bytes(), tmp_path)
    names = asking.told_inside("relax", LAYOUTS, model)
    assert names
    assert all("nhwc" in name for name in names), names
