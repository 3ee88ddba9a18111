"""Published bundles answer what is known: jobs over real engines, and ``tunesmith.runtime`` on what they publish.

Other tests compare with ONNX Runtime on seeded inputs, in which there is no voice and no text.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import zoo
from domain.jobs import RunnerKind, Tuner
from tests.contract.worker.test_real_engines import run
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import home
from tests.support.worker.fixtures import Bench
from tuner.host.catalogue import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines"), pytest.mark.timeout(400)]

LINE = "Tunesmith 2026"


def truths(*arguments: object) -> str:
    return asking.python("onnx", "-m", "tests.support.truths", *arguments)


def publish(
    bench: Bench,
    model: Path,
    shapes: dict[str, tuple[int, ...]],
    runner: RunnerKind = RunnerKind.LOCAL,
    verified: bool = True,
) -> Path:
    request = {"tuner": Tuner.METASCHEDULE, "trials": 1, "runner": runner}
    _, found = run(bench, content=model.read_bytes(), input_shapes=shapes, **request)
    assert found.verified is verified
    return bench.blobs.path(found.digest)


def answer(question: str, *arguments: object) -> Any:
    return json.loads(truths(question, *arguments))


def fetched(name: str) -> tuple[Path, dict[str, tuple[int, ...]]]:
    model = zoo.MODELS[name]
    return zoo.fetch(model, home()), dict(model.input_shapes)


def test_a_voice_is_told_from_silence_noise_and_a_hum(bench: Bench) -> None:
    heard = answer("speech", publish(bench, *fetched("silero-vad-if")))
    assert heard["voice"] > 0.6
    assert max(heard["silence"], heard["noise"], heard["hum"]) < 0.05


def test_a_line_of_text_is_read(bench: Bench) -> None:
    model, shapes = fetched("ppocr-rec")
    assert answer("text", publish(bench, model, shapes), model) == LINE


def test_files_are_named_by_their_bytes(bench: Bench) -> None:
    model, shapes = fetched("magika")
    assert answer("kinds", publish(bench, model, shapes), model) == ["python", "json", "elf", "png"]


def test_the_pitch_of_a_sine_is_found(bench: Bench) -> None:
    """Only built, as it takes long to verify."""
    model, shapes = fetched("basic-pitch")
    found = answer("pitches", publish(bench, model, shapes, RunnerKind.NONE, verified=False))
    assert found == pytest.approx([220, 440, 523.25], rel=0.01)


def test_a_quantized_mobilenet_tells_which_way_up_a_line_is(bench: Bench, tmp_path: Path) -> None:
    """PP-OCR's classifier of directions is a MobileNetV3. Only built: quantized models take minutes to verify."""
    model, shapes = fetched("ppocr-cls")
    truths("quantize", model, tmp_path / "quantized.onnx")
    upright, turned = answer(
        "direction", publish(bench, tmp_path / "quantized.onnx", shapes, RunnerKind.NONE, verified=False)
    )
    assert upright[0] > 0.8
    assert turned[1] > 0.8


def test_a_detector_that_selects_boxes_finds_the_letters_of_a_line(bench: Bench, tmp_path: Path) -> None:
    """Its bundle needs TVM, as the number of boxes depends on the picture; ``tunesmith run`` has that."""
    model, shapes = fetched("yolox-det")
    truths("detector", model, tmp_path / "detector.onnx")
    # On seeded inputs it finds nothing that could be compared.
    bundle = publish(bench, tmp_path / "detector.onnx", shapes, verified=False)
    truths("page", tmp_path / "page.npz")
    command = [sys.executable, "-m", "tunesmith", "run", str(bundle), "--inputs", "page.npz", "--output", "boxes.npz"]
    environment = {**os.environ, "TUNESMITH_HOME": str(home()), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    found = answer("boxes", tmp_path / "boxes.npz")
    assert (found["boxes"], found["letters"], found["missed"]) == (11, 12, [])
    assert found["overlap"] <= 0.45
