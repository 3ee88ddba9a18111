from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

RESIZED = """
told = []
for shape, mode, places in cases:
    network = Network([1, *shape])
    wide = network.add("Relu", "x")
    bounds = network.weight(np.float32([])), network.weight(np.float32([1, 1, 3, 2.5]))
    y = network.add("Resize", wide, *bounds, mode=mode, coordinate_transformation_mode=places)
    told.append(told_of(network.model(y)))
"""
FEW = [((21, 8, 10), "linear", places) for places in ("half_pixel", "asymmetric", "align_corners")]
LEFT = [
    ((32, 8, 10), "linear", "half_pixel"),  # channels fill vectors
    ((21, 8, 400), "linear", "half_pixel"),  # sums would be too long
    ((21, 8, 10), "nearest", "asymmetric"),
]


def test_few_channels_are_resized_by_products() -> None:
    for network in rewritten.told("resized", f"cases = {FEW}{RESIZED}"):
        assert network["count"] == 1
        assert "Resize" not in network["operators"]
        assert network["operators"].count("MatMul") == 2
        assert network["error"] < 1e-5


def test_what_has_vectors_or_long_lines_is_left() -> None:
    assert [network["count"] for network in rewritten.told("resized", f"cases = {LEFT}{RESIZED}")] == [0] * 3
