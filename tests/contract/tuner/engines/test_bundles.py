"""Bundles of both engines: their example runs in plain TVM, without any package of ours, or with a library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, interpreter, manifest
from tuner.host.session import EngineSession
from tuner.results import bundle
from tunesmith import verifying

pytestmark = pytest.mark.engine


def bundled(twin: Twin, form: str, folder: Path, left_out: str | None = None) -> Path:
    """The folder of an unpacked bundle of an untuned build, without the file that is ``left_out``."""
    asking.build(twin.session, twin.place, folder / "compiled", format=form)
    if left_out:
        # As on a machine that cannot link for the target.
        (folder / "compiled" / left_out).unlink()
    facts = manifest(twin, format=form)
    bundle.write(folder / "b.tar", compiled=folder / "compiled", manifest=facts, report=NOTHING_TUNED)
    bundle.open_bundle(folder / "b.tar", folder / "opened")
    return folder / "opened"


def run_example(command: list[str | Path], env: dict[str, str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "median of a run" in done.stdout


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
    opened = bundled(twin, form, tmp_path, left_out)
    libraries = {path.name for path in opened.glob("*.so")}
    assert verifying.check(tmp_path / "b.tar").libraries.keys() == libraries == {"libmodel.so", "mod.so"} - {left_out}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run_example([interpreter(twin.name), opened / "example.py", inputs[0], tmp_path / "actual.npz"], clean, tmp_path)
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "actual.npz")
    assert output["passed"]


def test_the_example_of_a_library_needs_the_client_and_numpy(
    twin: Twin, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    opened, alone = bundled(twin, "shared", tmp_path), asking.with_numpy_alone(tmp_path / "packages")
    assert {path.name for path in opened.iterdir()} == bundle.TEXTS.union(bundle.STANDALONE, bundle.BUILD_FILES)
    run_example([sys.executable, opened / "example.py", inputs[0], tmp_path / "actual.npz"], alone, tmp_path)
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "actual.npz")
    assert output["passed"]
