"""What engines answer when a model needs more memory than its stage may use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines.fixtures import start
from tuner.host import failures
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

MIB = 1024**2
SIZE = 12288
"""A square matrix of float32 of this size has 576 MiB."""


@pytest.mark.parametrize(("name", "method"), [("onnx", "run"), ("relay", "compile"), ("relax", "compile")])
def test_a_model_beyond_the_limit_is_refused_and_the_engine_goes_on(
    tmp_path: Path,
    engine_logs: Path,
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    name: str,
    method: str,
) -> None:
    (tmp_path / "hostile.onnx").write_bytes(models.large_constant(SIZE))
    spec = {"name": "x", "dtype": "float32", "shape": [1, 1]}
    params = {"inputs": [spec], "seeds": [0], "out_dir": str(tmp_path)}
    (given,) = reference.request("make_inputs", params, timeout=60)["paths"]
    build: dict[str, Any] = {"target": "llvm", "tuner": None, "records": None, "options": {}, "threads": 1}

    def asked(model: Path, given: str) -> dict[str, Any]:
        run = {"path": str(model), "inputs": given, "threads": 1, "outputs": str(tmp_path / "outputs.npz")}
        return run if method == "run" else {**build, "model": str(model), "out_dir": str(tmp_path / "build")}

    with start(name, engine_logs / f"memory-{name}.log") as engine:
        used = re.search(r"VmData:\s+(\d+)", Path(f"/proc/{engine.pid}/status").read_text())
        assert used
        engine.limit_memory(int(used[1]) * 1024 + 400 * MIB)
        with pytest.raises(errors.EngineError) as caught:
            engine.request(method, asked(tmp_path / "hostile.onnx", given), timeout=100)
        assert failures.needs_memory(caught.value), caught.value
        engine.request(method, asked(prepared, str(inputs[0])), timeout=100)
