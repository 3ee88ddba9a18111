"""Models whose operators an engine lacks or computes differently, until they are prepared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


MODELS = (
    models.lstm,
    models.quantized_convolution,
    models.dynamically_quantized,
    models.scalar_bounds,
    models.stacked_shifts,
)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_both_engines_compute_what_onnx_runtime_does(
    make: Callable[[], bytes], twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    prepared, specs = asking.prepare(reference, make(), tmp_path)
    params = {**twin.place, "model": str(prepared), "tuner": None, "records": None, "out_dir": str(tmp_path / "built")}
    twin.session.request("compile", params, timeout=120)
    inputs = asking.make_inputs(reference, specs, tmp_path / "inputs")
    assert asking.agrees(twin.session, tmp_path / "built", reference, tmp_path / "model.onnx", inputs, tmp_path)
