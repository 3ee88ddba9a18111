"""Bundles of both engines and every format: their example runs in plain TVM, without any package of ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from domain.models import TensorSpec
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, home
from tuner.host import catalogue, environments
from tuner.host.session import EngineSession
from tuner.results import bundle, manifest

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(("form", "left_out"), [("tvm", None), ("object", None), ("object", "mod.so")])
def test_the_example_of_a_bundle_agrees_with_the_reference(
    twin: Twin,
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    tmp_path: Path,
    form: str,
    left_out: str | None,
) -> None:
    params = {**twin.place, "records": None, "format": form, "out_dir": str(tmp_path / "compiled")}
    twin.session.request("compile", params, timeout=200)
    if left_out:
        # As on a machine that cannot link for the target.
        (tmp_path / "compiled" / left_out).unlink()
    facts = manifest.Manifest(
        model_digest="0" * 64, model_name="small", variant="untuned", target=twin.target, threads=1, device_key="any",
        toolchain=twin.session.hello["toolchain"], precision="f32", created_by="a test",
        inputs=(TensorSpec(name="image", dtype="float32", shape=(1, 3, 16, 16)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(1, 5)),),
        format=form,
    )  # fmt: skip
    bundle.write(tmp_path / "b.tar", compiled=tmp_path / "compiled", manifest=facts, report=NOTHING_TUNED)
    bundle.open_bundle(tmp_path / "b.tar", tmp_path / "opened")
    python = environments.interpreter(catalogue.get(twin.name), home())
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python, tmp_path / "opened" / "example.py", inputs[0], tmp_path / "actual.npz"]
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "median of a run" in done.stdout
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "actual.npz")
    assert output["passed"]
