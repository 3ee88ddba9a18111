from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tuner.host import catalogue, environments
from tuner.host.inspection import Inspector
from tuner.search import operators
from tuner.search.operators import OperatorSpec
from tunesmith import connection, operator_spec

VALID: list[tuple[str, dict[str, list[int]], dict[str, Any], tuple[int, ...]]] = [
    ("matmul", {"x": [4, 8], "w": [8, 16]}, {}, (4, 16)),
    ("matmul", {"x": [2, 4, 8], "w": [8, 16]}, {}, (2, 4, 16)),
    ("batch_matmul", {"a": [2, 4, 8], "b": [2, 8, 3]}, {}, (2, 4, 3)),
    ("dense", {"x": [4, 8], "w": [16, 8]}, {}, (4, 16)),
    ("conv1d", {"x": [1, 4, 16], "w": [8, 4, 3]}, {"padding": 1}, (1, 8, 16)),
    ("conv2d", {"x": [1, 8, 14, 14], "w": [16, 8, 3, 3]}, {"strides": 2, "padding": [1, 1]}, (1, 16, 7, 7)),
    ("conv2d", {"x": [1, 8, 14, 12], "w": [16, 8, 3, 1]}, {"padding": [0, 0, 2, 1]}, (1, 16, 14, 13)),
    ("conv2d", {"x": [1, 8, 14, 14], "w": [16, 4, 3, 3]}, {"groups": 2, "dilation": 2}, (1, 16, 10, 10)),
    ("conv3d", {"x": [1, 2, 6, 6, 6], "w": [4, 2, 3, 3, 3]}, {}, (1, 4, 4, 4, 4)),
    ("depthwise_conv2d", {"x": [1, 8, 14, 14], "w": [8, 1, 3, 3]}, {"padding": 1}, (1, 8, 14, 14)),
    ("conv2d_transpose", {"x": [1, 8, 7, 7], "w": [8, 4, 2, 2]}, {"strides": 2}, (1, 4, 14, 14)),
]


@pytest.mark.parametrize(("operator", "shapes", "attributes", "output"), VALID)
def test_the_shape_of_an_output(
    operator: str, shapes: dict[str, list[int]], attributes: dict[str, Any], output: tuple[int, ...]
) -> None:
    checked = operators.check(OperatorSpec(operator=operator, shapes=shapes, attributes=attributes))
    assert checked.output == output
    assert checked.name.startswith(f"{operator} ")


@pytest.mark.parametrize("operator", operators.OPERATORS)
def test_hints_hold_an_example_that_works(operator: str) -> None:
    with pytest.raises(errors.InvalidOperator, match="is missing") as caught:
        operators.check(OperatorSpec(operator=operator, shapes={}))
    example = operator_spec.parse(str(caught.value.hint).removeprefix("Example: ").strip("'."))
    assert example["operator"] == operator
    assert operators.check(OperatorSpec(**example)).output


def test_a_misspelled_attribute_is_not_taken_for_a_tensor() -> None:
    described = operator_spec.parse("conv2d x=1,8,16,16 w=8,8,3,3 paddin=1")
    with pytest.raises(errors.InvalidOperator, match="unknown tensor or attribute of conv2d 'paddin'") as caught:
        operators.check(OperatorSpec(**described))
    assert str(caught.value.hint).startswith("Did you mean 'padding'")


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "reason"),
    [
        ("conv2", {}, {}, "unknown operator"),
        ("matmul", {"x": [4, 8]}, {}, "tensors x and w"),
        ("matmul", {"x": [4, 8], "w": [8, 3], "z": [1]}, {}, "unknown tensor or attribute of matmul 'z'"),
        ("matmul", {"x": [4], "w": [8, 3]}, {}, "2 or 3 dimensions"),
        ("matmul", {"x": [4, 8], "w": [7, 3]}, {}, "8 and 7 differ"),
        ("matmul", {"x": [4, 8], "w": [8, 3]}, {"strides": 1}, "unknown attribute"),
        ("batch_matmul", {"a": [2, 4, 8], "b": [3, 8, 3]}, {}, "batches"),
        ("dense", {"x": [4, 8], "w": [8, 16]}, {}, "features"),
        ("dense", {"x": [4, 0], "w": [8, 0]}, {}, "cannot have the shape"),
        ("dense", {"x": [4, -8], "w": [8, -8]}, {}, "cannot have the shape"),
        ("dense", {"x": [1 << 20, 1 << 10], "w": [1 << 10, 1 << 10]}, {}, "the limit is"),
        ("conv2d", {"x": [1, 3, 8, 8], "w": [8, 4, 3, 3]}, {}, "channels"),
        ("conv2d", {"x": [1, 4, 8, 8], "w": [7, 2, 3, 3]}, {"groups": 2}, "channels"),
        ("conv2d", {"x": [1, 3, 2, 2], "w": [8, 3, 3, 3]}, {}, "output of"),
        ("conv2d", {"x": [1, 3, 8, 8], "w": [8, 3, 3, 3]}, {"stride": 1}, "unknown attribute"),
        ("conv2d", {"x": [1, 3, 8, 8], "w": [8, 3, 3, 3]}, {"strides": 0}, "strides cannot be 0"),
        ("conv2d", {"x": [1, 3, 8, 8], "w": [8, 3, 3, 3]}, {"strides": [1, 1, 1]}, "strides cannot be"),
        ("conv2d", {"x": [1, 3, 8, 8], "w": [8, 3, 3, 3]}, {"padding": -1}, "padding cannot be -1"),
        ("conv2d", {"x": [1, 3, 8, 8], "w": [8, 3, 3, 3]}, {"groups": [1, 1]}, "groups cannot be"),
        ("depthwise_conv2d", {"x": [1, 8, 8, 8], "w": [8, 1, 3, 3]}, {"groups": 8}, "as many groups"),
        ("depthwise_conv2d", {"x": [1, 8, 8, 8], "w": [8, 2, 3, 3]}, {}, "channels"),
        ("conv2d_transpose", {"x": [1, 8, 7, 7], "w": [4, 8, 2, 2]}, {}, "channels"),
    ],
)
def test_what_is_no_operator(
    operator: str, shapes: dict[str, list[int]], attributes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(errors.InvalidOperator, match=reason) as caught:
        operators.check(OperatorSpec(operator=operator, shapes=shapes, attributes=attributes))
    assert caught.value.hint


def test_near_matches_and_dtypes() -> None:
    with pytest.raises(errors.InvalidOperator) as caught:
        operators.check(OperatorSpec(operator="conv2", shapes={}))
    assert caught.value.details["near_matches"][0] == "conv2d"
    with pytest.raises(errors.InvalidOperator, match="dtype") as caught:
        operators.check(OperatorSpec(operator="dense", shapes={"x": [1, 2], "w": [3, 2]}, dtype="float16"))
    assert "precision 'fp16'" in str(caught.value.hint)


def test_names_tell_operators_apart() -> None:
    shapes = {"x": [1, 8, 14, 14], "w": [16, 8, 3, 3]}
    names = {
        operators.check(OperatorSpec(operator="conv2d", shapes=shapes, attributes=attributes)).name
        for attributes in ({}, {"strides": 2}, {"padding": 1}, {"dilation": 2})
    }
    assert len(names) == 4
    assert "conv2d 1×8×14×14 ∗ 16×8×3×3" in names


@pytest.mark.engine
def test_every_operator_becomes_a_model_that_runs(tmp_path: Path) -> None:
    spec, home = catalogue.get("onnx"), connection.home()
    inspector = Inspector(spec=spec, python=environments.interpreter(spec, home), home=home)
    for number, (operator, shapes, attributes, output) in enumerate(VALID):
        checked = operators.check(OperatorSpec(operator=operator, shapes=shapes, attributes=attributes))
        made = tmp_path / f"{number}.onnx"
        operators.make_model(inspector, checked, made)
        first = made.read_bytes()
        operators.make_model(inspector, checked, made)
        assert made.read_bytes() == first, "the same description gives the same bytes"
        prepared = inspector.prepare(made, {}, tmp_path / "prepared.onnx")
        assert [(spec.dtype, spec.shape) for spec in prepared.outputs] == [("float32", output)], operator
        assert sum(prepared.operators.values()) <= 2, operator
