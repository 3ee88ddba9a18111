from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession


@pytest.fixture
def outlying(reference: EngineSession, tmp_path: Path) -> tuple[Path, list[Path]]:
    """A model whose second layer loses most by rounding, and inputs for it."""
    path = tmp_path / "outlying.onnx"
    path.write_bytes(models.outlying_network())
    spec = {"name": "x", "dtype": "float32", "shape": [4, 16]}
    return path, [asking.make_inputs(reference, [spec], tmp_path / str(seed), seed=seed) for seed in range(4)]
