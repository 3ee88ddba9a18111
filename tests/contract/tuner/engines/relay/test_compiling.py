from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.mark.smoke
def test_a_silently_wrong_import_is_caught_by_comparing(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    """TVM 0.19 applies the lower of crossed bounds last, ONNX the upper one."""
    [output] = asking.build_and_compare(relay, place, reference, models.crossed_bounds(), tmp_path)
    assert not output["passed"]


def test_an_unsupported_target_is_told_from_an_unknown_one(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    told = {"cuda -arch=sm_90": "metaschedule", "llvm -mtriple=riscv64-linux-gnu": "aarch64", "vulkan": ""}
    for target, hint in told.items():
        refused = asking.refusal(relay, "compile", {**place, "target": target, "out_dir": str(tmp_path)})
        assert refused.engine_code == "unsupported_target"
        assert hint in (refused.hint or "")


def test_a_model_that_cannot_be_imported_is_told_why(relay: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(models.mismatched_channels())
    refused = asking.refusal(relay, "check", {"model": str(tmp_path / "model.onnx")})
    assert refused.engine_code == "import_failed"
    begin = "TVM cannot import Conv (the node Conv_y): DiagnosticError: The Relay type checker is unable to show"
    end = "`Tensor[(4, 5, 3, 3), float32]` does not match `Tensor[(4, 3, 3, 3), float32]`"
    assert (refused.message.startswith(begin), refused.message.endswith(end), "\n" in refused.message) == (
        True,
        True,
        False,
    )
    assert (refused.details["operator"], "other operators instead of Conv" in str(refused.hint)) == ("Conv", True)


def test_long_lines_are_compiled_in_seconds(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    """TVM's own schedule makes one vector of the line, of which LLVM makes no end."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [models._node("Conv", ["x", "w"], ["y"], strides=[4], kernel_shape=[80])]
    tensors = [models._floats("w", (8, 1, 80), weights)]
    line = models.model(nodes, inputs={"x": (1, 1, 16000)}, outputs={"y": (1, 8, 3981)}, tensors=tensors)
    started = time.monotonic()
    [output] = asking.build_and_compare(relay, place, reference, line, tmp_path)
    assert output["passed"]
    assert time.monotonic() - started < 60
