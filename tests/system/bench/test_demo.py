"""The demo itself: a real model, through the public command line, on a home folder that has never been used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tuner.engines.fixtures import home as engines_home
from tuner import catalogue, environments

ROOT = Path(__file__).parents[3]


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_the_demo_tunes_a_real_model_and_leaves_nothing_running(tmp_path: Path) -> None:
    engines = {
        environments.variable(spec): str(environments.interpreter(spec, engines_home()))
        for spec in catalogue.ENGINES.values()
    }
    ours = {"TUNESMITH_HOME": str(tmp_path / "home"), "TUNESMITH_LOCK_FOLDER": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ours["TUNESMITH_BENCHMARK_SECONDS"] = "1"  # Else 7 s, thrice on a busy machine.
    (tmp_path / "home").mkdir()
    python = os.environ.get("TUNESMITH_APP_PYTHON") or sys.executable
    done = subprocess.run(
        [python, "-m", "bench.demo", "--seconds", "5"],
        env={**os.environ, **engines, **ours}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("ONNX Runtime", "untuned", "tuned"):
        assert f"\n  {row} " in done.stdout
    assert "published" in done.stdout
    assert "Execution time summary:\n" in done.stdout
    assert (tmp_path / "home" / "demo" / "ppocr-cls.tar").is_file()
    assert not (tmp_path / "home" / "server.json").exists()
