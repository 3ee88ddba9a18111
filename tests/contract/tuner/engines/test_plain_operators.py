"""Models whose operators an engine lacks or computes differently, until they are prepared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin
from tests.support.tuner.engines.onnx import inside
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


MODELS = (
    models.lstm,
    models.quantized_convolution,
    models.dynamically_quantized,
    models.scalar_bounds,
    models.stacked_shifts,
)


OPERATORS = ("recurrent", "dynamic", "loops", "resized", "sampled", "einsum", "normalized", "quantized", "attention")
"""Models of ``tests/support/tuner/engines/onnx/operators.py``."""


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_both_engines_compute_what_onnx_runtime_does(
    make: Callable[[], bytes], twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    _require_same(make(), twin, reference, tmp_path)


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operators")
    inside.write_operators(folder)
    return folder


@pytest.mark.parametrize("name", OPERATORS)
def test_both_engines_compute_the_operators_of_many_networks(
    name: str, operators: Path, twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    _require_same((operators / f"{name}.onnx").read_bytes(), twin, reference, tmp_path)


def _require_same(model: bytes, twin: Twin, reference: EngineSession, folder: Path) -> None:
    outputs = asking.build_and_compare(twin.session, twin.place, reference, model, folder, tuner=None)
    assert not [output for output in outputs if not output["passed"]]
    # An approximation instead of the operator itself is within the usual tolerance.
    assert not [output for output in outputs if output["dtype"] == "float32" and output["max_rel"] > 1e-4]
