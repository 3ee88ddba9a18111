"""The demo itself: a real model, through the public command line, on a home folder that has never been used."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import serving, waiting
from tuner.host import catalogue


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_the_demo_tunes_a_real_model_and_leaves_nothing_running(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [serving.PYTHON, "-m", "bench.demo", "--seconds", "3"],
        # However long the numbers of a busy machine are, the table has room for them.
        env=serving.environment(home, COLUMNS="200"), cwd=catalogue.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("ONNX Runtime", "untuned", "tuned"):
        assert f"\n  {row} " in done.stdout
    assert "published" in done.stdout
    assert "Execution time summary:\n" in done.stdout
    assert (home / "demo" / "ppocr-cls.tar").is_file()
    assert not (home / "server.json").exists()


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_benchmark_that_is_stopped_leaves_nothing_running(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with subprocess.Popen(
        [serving.PYTHON, "-m", "bench", "demo", "--seconds", "100"],
        env=serving.environment(home), cwd=catalogue.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as demo:  # fmt: skip
        waiting.until(lambda: (home / "server.json").exists(), seconds=120.0)
        demo.terminate()
    assert demo.returncode == 128 + signal.SIGTERM
    assert not (home / "server.json").exists()
