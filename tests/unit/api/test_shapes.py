"""Shapes of requests against a model with several inputs."""

from __future__ import annotations

import pytest

from api.jobs import shapes
from domain import errors
from domain.models import ModelFacts, TensorSpec

IDS, MASK = (
    TensorSpec(name="ids", dtype="int64", shape=("batch", "length")),
    TensorSpec(name="mask", dtype="int64", shape=("batch", "length", None)),
)
SCALE = TensorSpec(name="scale", dtype="float32", shape=())
FACTS = ModelFacts(inputs=(IDS, MASK, SCALE), outputs=(), opset=17, ir_version=8, operators={}, parameters=1)


def test_inputs_that_no_host_holds_are_refused() -> None:
    shapes.check(FACTS, {"ids": (1, 2), "mask": (1, 2, 2**31 - 1)})
    with pytest.raises(errors.ShapeMismatch, match="'mask' alone 34359738352") as caught:
        shapes.check(FACTS, {"ids": (8, 2), "mask": (8, 2, 2**31 - 1)})
    assert caught.value.details["elements"] == {"ids": 16, "mask": 16 * (2**31 - 1), "scale": 1}


def test_sizes_that_the_model_fixes_count_too() -> None:
    fixed = TensorSpec(name="x", dtype="float32", shape=(2**17, 2**17))
    with pytest.raises(errors.ShapeMismatch, match="17179869184 elements"):
        shapes.check(ModelFacts(inputs=(fixed,), outputs=(), opset=17, ir_version=8, operators={}, parameters=1), {})
