"""Bundles of both engines and every format: their example runs in plain TVM, without any package of ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.tensors import TensorSpec
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, home, start
from tuner import bundle, catalogue, environments, manifest
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", params=["relay", "relax"])
def engine(request: pytest.FixtureRequest, engine_logs: Path) -> Iterator[EngineSession]:
    with start(request.param, engine_logs / f"{request.param}-bundles.log") as session:
        yield session


@pytest.mark.parametrize(("form", "left_out"), [("shared", None), ("object", None), ("object", "mod.so")])
def test_the_example_of_a_bundle_agrees_with_the_reference(
    engine: EngineSession,
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    tmp_path: Path,
    form: str,
    left_out: str | None,
) -> None:
    target = f"llvm -mcpu={engine.hello['mcpu']}"
    params = {"model": str(prepared), "target": target, "threads": 1, "records": None, "format": form}
    engine.request("compile", {**params, "out_dir": str(tmp_path / "compiled")}, timeout=200)
    if left_out:
        # As on a machine that cannot link for the target.
        (tmp_path / "compiled" / left_out).unlink()
    name = engine.hello["engine"]
    facts = manifest.Manifest(
        model_digest="0" * 64, model_name="small", variant="untuned", target=target, threads=1, device_key="any",
        toolchain=engine.hello["toolchain"], precision="f32", created_by="a test",
        inputs=(TensorSpec(name="image", dtype="float32", shape=(1, 3, 16, 16)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(1, 5)),),
        format=form,
    )  # fmt: skip
    bundle.write(tmp_path / "b.tar", compiled=tmp_path / "compiled", manifest=facts, report=NOTHING_TUNED)
    bundle.open_bundle(tmp_path / "b.tar", tmp_path / "opened")
    python = environments.interpreter(catalogue.get(name), home())
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python, tmp_path / "opened" / "example.py", inputs[0], tmp_path / "actual.npz"]
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "median of a run" in done.stdout
    expected = {"path": str(prepared), "inputs": str(inputs[0]), "outputs": str(tmp_path / "e.npz"), "threads": 1}
    reference.request("run", expected, timeout=60)
    pair = {"expected": str(tmp_path / "e.npz"), "actual": str(tmp_path / "actual.npz")}
    assert all(each["passed"] for each in reference.request("compare", pair, timeout=60)["outputs"])
