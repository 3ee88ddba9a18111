"""Wheels of real builds, installed beside numpy in an environment that has nothing else."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uv

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, manifest
from tuner.host.session import EngineSession
from tuner.results import bundle, wheels
from tuner.results.manifest import Manifest

pytestmark = pytest.mark.engine

RUN = """
import importlib.metadata, json, sys
import numpy as np
import two_wheels
feeds = dict(np.load(sys.argv[1]))
outputs = two_wheels.run(feeds)
np.savez(sys.argv[2], **outputs)
with two_wheels.session(threads=1) as session:
    assert session.run(None, feeds)[0].tobytes() == outputs["scores"].tobytes()
print(json.dumps(sorted(found.name for found in importlib.metadata.distributions())))
"""


def described(twin: Twin) -> Manifest:
    return manifest(twin, model_name='Two """ wheels.onnx', device_key="x86_64/any/t1", format="wheel")


@pytest.mark.parametrize(
    ("model", "shapes"),
    [(models.small_network, {"image": [1, 3, 16, 16]}), (models.ranked, {})],
    ids=["convolutions", "sorting"],
)
def test_auditwheel_finds_a_wheel_to_run_on_distributions_of_2014(
    twin: Twin, reference: EngineSession, tmp_path: Path, model: Callable[[], bytes], shapes: dict[str, list[int]]
) -> None:
    prepared, _ = asking.prepare(reference, model(), tmp_path, **shapes)
    asking.build(twin.session, twin.place, tmp_path / "out", model=str(prepared), format="wheel")
    wheel = tmp_path / "out" / wheels.write(tmp_path / "out", described(twin))
    assert wheel.name.endswith("-manylinux2014_x86_64.whl")
    command = [sys.executable, "-m", "auditwheel", "show", wheel]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 0, shown.stderr
    told = " ".join(shown.stdout.split())
    assert 'is consistent with the following platform tag: "manylinux_2_17_x86_64"' in told, told


def test_a_wheel_runs_beside_numpy_alone(twin: Twin, inputs: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "built"
    asking.build(twin.session, twin.place, folder, format="wheel")
    facts = described(twin)
    written = bundle.write(tmp_path / "b.tar", compiled=folder, manifest=facts, report=NOTHING_TUNED)
    again = bundle.write(tmp_path / "again.tar", compiled=folder, manifest=facts, report=NOTHING_TUNED)
    assert again == dataclasses.replace(written)
    assert bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out") == written
    [wheel] = (tmp_path / "out").glob("*.whl")
    assert f"pip install {wheel.name}" in (tmp_path / "out" / "README.md").read_text()
    python = tmp_path / "environment" / "bin" / "python"
    for command in (["venv", python.parents[1]], ["pip", "install", "--python", python, wheel]):
        subprocess.run([uv.find_uv_bin(), *map(str, command)], check=True, capture_output=True)
    run = [python, "-I", "-c", RUN, inputs[0], tmp_path / "actual.npz"]
    done = subprocess.run(list(map(str, run)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == ["numpy", "two_wheels"]
    asking.run(twin.session, folder, inputs[0], tmp_path / "expected.npz")
    asking.assert_same_bytes(tmp_path / "actual.npz", tmp_path / "expected.npz")
