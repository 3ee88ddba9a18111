from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def _inspect(reference: EngineSession, path: Path) -> dict[str, Any]:
    return reference.request("inspect", {"path": str(path)}, timeout=60)


def _prepare(reference: EngineSession, folder: Path, content: bytes, **shapes: list[int]) -> dict[str, Any]:
    (folder / "model.onnx").write_bytes(content)
    params = {"path": str(folder / "model.onnx"), "input_shapes": shapes, "out_path": str(folder / "out.onnx")}
    return reference.request("prepare", params, timeout=60)


def test_inspect_tells_what_the_file_holds(reference: EngineSession, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.small_network())
    facts = _inspect(reference, path)
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["batch", 3, "height", "width"]}]
    assert facts["outputs"] == [{"name": "scores", "dtype": "float32", "shape": ["batch", 5]}]
    assert facts["opset"] == 13
    assert facts["operators"]["Conv"] == 2
    assert facts["parameters"] == 8 * 27 + 8 + 16 * 8 + 16 + 5 * 16 + 5


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 64, models.truncated()])
def test_what_is_no_model_is_refused(reference: EngineSession, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    assert asking.refusal(reference, "inspect", {"path": str(path)}).engine_code == "invalid_model"


def test_an_operator_that_the_reference_lacks_is_named(reference: EngineSession, tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        _prepare(reference, tmp_path, models.foreign_operators())
    assert caught.value.engine_code == "unsupported_operators"
    assert caught.value.details == {"operators": {"my.domain::Twist": 2}}


def test_prepare_fixes_every_dimension(reference: EngineSession, tmp_path: Path) -> None:
    facts = _prepare(reference, tmp_path, models.small_network(), image=[2, 3, 12, 20])
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": [2, 3, 12, 20]}]
    assert facts["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [2, 5]}]
    assert facts["folded"]
    assert _inspect(reference, tmp_path / "out.onnx")["inputs"] == facts["inputs"]


def test_a_missing_dimension_is_named(reference: EngineSession, tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        _prepare(reference, tmp_path, models.small_network())
    assert caught.value.engine_code == "shape_required"
    assert caught.value.details["dimensions"] == [
        {"input": "image", "axis": 0, "symbol": "batch"},
        {"input": "image", "axis": 2, "symbol": "height"},
        {"input": "image", "axis": 3, "symbol": "width"},
    ]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"picture": [1, 3, 8, 8]}, "no input picture; its inputs are image"),
        ({"image": [1, 3, 8]}, "has 4 dimensions"),
        ({"image": [1, 4, 8, 8]}, "dimension 1 of image is fixed at 3"),
        ({"image": [1, 3, 0, 8]}, "must be positive"),
    ],
)
def test_a_wrong_shape_is_explained(
    reference: EngineSession, tmp_path: Path, shapes: dict[str, list[int]], words: str
) -> None:
    with pytest.raises(errors.EngineRequestFailed, match=words) as caught:
        _prepare(reference, tmp_path, models.small_network(), **shapes)
    assert caught.value.engine_code == "shape_mismatch"
