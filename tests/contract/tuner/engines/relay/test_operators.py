"""Operators that TVM's own importer lacks or reads wrongly."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

NETWORKS = {
    "grid_sample_16": (partial(models.grid_samples, opset=16, rank=4, modes=("bilinear", "nearest", "bicubic")), 9),
    "grid_sample_20": (partial(models.grid_samples, opset=20, rank=4, modes=("linear", "cubic")), 6),
    "grid_sample_of_volumes": (partial(models.grid_samples, opset=20, rank=5, modes=("linear", "nearest")), 6),
    "clips_with_one_bound": (models.lower_bounds, 2),
    "products_of_stacks": (models.products_of_stacks, len(models.STACKS)),
}
"""With their numbers of outputs."""


@pytest.mark.parametrize("name", NETWORKS)
def test_operators_agree_with_the_reference(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, name: str
) -> None:
    make, count = NETWORKS[name]
    outputs = asking.build_and_compare(relay, place, reference, make(), tmp_path, seed=3)
    assert len(outputs) == count
    assert [output["output"] for output in outputs if not output["passed"]] == []
