"""Published bundles answer what is known: jobs over real engines, and ``tunesmith.runtime`` on what they publish.

Other tests compare with ONNX Runtime on seeded inputs, in which there is no voice and no text.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import zoo
from domain.jobs import RunnerKind, Tuner
from tests.contract.worker.test_real_engines import _engines, run
from tests.support.tuner.engines.fixtures import home
from tests.support.worker.fixtures import Bench
from tuner.host import catalogue, environments

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures(_engines.__name__), pytest.mark.timeout(400)]

LINE = "Tunesmith 2026"


def truths(*arguments: object) -> str:
    python = environments.interpreter(catalogue.get("onnx"), home())
    command = [str(python), "-m", "tests.support.truths", *map(str, arguments)]
    done = subprocess.run(command, cwd=catalogue.ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(
    bench: Bench, question: str, model: Path, shapes: dict[str, tuple[int, ...]], *more: object,
    runner: RunnerKind = RunnerKind.LOCAL,
) -> Any:  # fmt: skip
    request = {"tuner": Tuner.METASCHEDULE, "trials": 1, "runner": runner}
    _, found = run(bench, content=model.read_bytes(), input_shapes=shapes, **request)
    assert found.verified is (runner is RunnerKind.LOCAL)
    return json.loads(truths(question, bench.blobs.path(found.digest), *more))


def fetched(name: str) -> tuple[Path, dict[str, tuple[int, ...]]]:
    model = zoo.MODELS[name]
    return zoo.fetch(model, home()), dict(model.input_shapes)


def test_a_voice_is_told_from_silence_noise_and_a_hum(bench: Bench) -> None:
    heard = answer(bench, "speech", *fetched("silero-vad-if"))
    assert heard["voice"] > 0.6
    assert max(heard["silence"], heard["noise"], heard["hum"]) < 0.05


def test_a_line_of_text_is_read(bench: Bench) -> None:
    model, shapes = fetched("ppocr-rec")
    assert answer(bench, "text", model, shapes, model) == LINE


def test_a_quantized_mobilenet_tells_which_way_up_a_line_is(bench: Bench, tmp_path: Path) -> None:
    """PP-OCR's classifier of directions is a MobileNetV3. Only built: quantized models take minutes to verify."""
    model, shapes = fetched("ppocr-cls")
    truths("quantize", model, tmp_path / "quantized.onnx")
    upright, turned = answer(bench, "direction", tmp_path / "quantized.onnx", shapes, runner=RunnerKind.NONE)
    assert upright[0] > 0.8
    assert turned[1] > 0.8
