from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tuner import catalogue, environments
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

PLAIN_TVM = """
import sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
folder = sys.argv[1]
library = tvm.runtime.load_module(f"{folder}/mod.so")
executor = graph_executor.create(open(f"{folder}/mod.json").read(), library, tvm.cpu(0))
executor.load_params(open(f"{folder}/mod.params", "rb").read())
executor.set_input("image", np.load(sys.argv[2])["image"])
executor.run()
np.savez(sys.argv[3], scores=executor.get_output(0).numpy())
"""


def _prepare(reference: EngineSession, folder: Path, content: bytes) -> Path:
    (folder / "model.onnx").write_bytes(content)
    params = {"path": str(folder / "model.onnx"), "input_shapes": {}, "out_path": str(folder / "prepared.onnx")}
    reference.request("prepare", params, timeout=60)
    return folder / "prepared.onnx"


def _expected(reference: EngineSession, model: Path, inputs: Path, folder: Path) -> Path:
    path = folder / "expected.npz"
    params = {"path": str(model), "inputs": str(inputs), "outputs": str(path), "threads": 1}
    reference.request("run", params, timeout=60)
    return path


def _compare(reference: EngineSession, expected: Path, actual: Path) -> list[dict[str, Any]]:
    params = {"expected": str(expected), "actual": str(actual)}
    outputs: list[dict[str, Any]] = reference.request("compare", params, timeout=60)["outputs"]
    return outputs


def test_hello_tells_toolchain_and_cpu(relay: EngineSession) -> None:
    assert relay.hello["toolchain"] == {"engine": "relay", "tvm": "0.19.0", "llvm": "22"}
    assert relay.hello["mcpu"] in relay.hello["cpus"]


@pytest.mark.smoke
def test_compiled_agrees_with_the_reference(
    relay: EngineSession, reference: EngineSession, prepared: Path, inputs: list[Path], untuned: Path, tmp_path: Path
) -> None:
    for path in inputs:
        params = {"bundle": str(untuned), "inputs": str(path), "outputs": str(tmp_path / "a.npz"), "threads": 1}
        answer = relay.request("run", {**params, "number": 2, "repeat": 3}, timeout=60)
        assert answer["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 5]}]
        assert len(answer["samples"]) == 3
        [output] = _compare(reference, _expected(reference, prepared, path, tmp_path), tmp_path / "a.npz")
        assert output["output"] == "scores"
        assert output["passed"]


def test_plain_tvm_loads_the_files(
    reference: EngineSession, prepared: Path, inputs: list[Path], untuned: Path, tmp_path: Path
) -> None:
    home = Path(os.environ.get("TUNESMITH_HOME") or Path.home() / ".local" / "share" / "tunesmith")
    python = environments.interpreter(catalogue.get("relay"), home)
    command = [str(python), "-c", PLAIN_TVM, str(untuned), str(inputs[0]), str(tmp_path / "a.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [output] = _compare(reference, _expected(reference, prepared, inputs[0], tmp_path), tmp_path / "a.npz")
    assert output["passed"]


@pytest.mark.smoke
def test_time_gives_one_sample_per_repeat(relay: EngineSession, untuned: Path, inputs: list[Path]) -> None:
    params = {"bundle": str(untuned), "inputs": str(inputs[0]), "threads": 1, "number": 3, "repeat": 5}
    samples = relay.request("time", params, timeout=60)["samples"]
    assert len(samples) == 5
    assert all(0 < sample < 0.1 for sample in samples)


def test_a_folder_compiled_into_again_is_read_again(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "bundle"
    other = _prepare(reference, tmp_path, models.reduce_mean_18())
    for model, names in ((place["model"], ["scores"]), (str(other), ["mean"])):
        relay.request("compile", {**place, "model": model, "out_dir": str(folder)}, timeout=120)
        answer = relay.request("run", {"bundle": str(folder), "threads": 1}, timeout=60)
        assert [output["name"] for output in answer["outputs"]] == names


def test_unsupported_operators_are_named_and_counted(
    relay: EngineSession, reference: EngineSession, tmp_path: Path
) -> None:
    path = _prepare(reference, tmp_path, models.unsupported_operators())
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("check", {"model": str(path)}, timeout=60)
    assert caught.value.engine_code == "unsupported_operators"
    assert caught.value.details["operators"] == {"Det": 2}


def test_a_truncated_model_is_refused(relay: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(models.truncated())
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("check", {"model": str(tmp_path / "bad.onnx")}, timeout=60)
    assert caught.value.engine_code == "invalid_model"


@pytest.mark.smoke
def test_a_silently_wrong_import_is_caught_by_comparing(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    """TVM 0.19 reads opset-18 ReduceMean as if its axes were an attribute that is missing."""
    model = _prepare(reference, tmp_path, models.reduce_mean_18())
    spec = {"name": "x", "dtype": "float32", "shape": [1, 4, 6, 6]}
    made = {"inputs": [spec], "seeds": [0], "out_dir": str(tmp_path)}
    [fed] = reference.request("make_inputs", made, timeout=60)["paths"]
    relay.request("compile", {**place, "model": str(model), "out_dir": str(tmp_path / "b")}, timeout=120)
    params = {"bundle": str(tmp_path / "b"), "inputs": fed, "outputs": str(tmp_path / "a.npz"), "threads": 1}
    relay.request("run", params, timeout=60)
    [output] = _compare(reference, _expected(reference, model, Path(fed), tmp_path), tmp_path / "a.npz")
    assert not output["passed"]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("llvm -mcpu=znver9", "znver3"),
        ("llvm -mcpu=skylake-avx51", "skylake-avx512"),
        ("llvm -mcpu=skylake-avx512 -mattr=+avx51", "avx512f"),
        ("llvm -mattr=avx2", "+avx2"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortexa72", "cortex-a72"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3", None),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+noen", "neon"),
        ("llvm -mtriple=aarhc64-linux-gnu", "aarch64"),
        ("llvm -mtriple=aarch64-lnux-gnu", "linux"),
        ("llvm -colour=red", None),
    ],
)
def test_an_unknown_target_gets_near_matches(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path, text: str, near: str | None
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("compile", {**place, "target": text, "out_dir": str(tmp_path)}, timeout=60)
    assert caught.value.engine_code == "unknown_target"
    assert near is None or near in caught.value.details["near_matches"]


@pytest.mark.parametrize(
    ("text", "told"),
    [("cuda -arch=sm_90", "metaschedule"), ("llvm -mtriple=riscv64-linux-gnu", "aarch64"), ("vulkan", None)],
)
def test_an_unsupported_target_is_told_from_an_unknown_one(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path, text: str, told: str | None
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("compile", {**place, "target": text, "out_dir": str(tmp_path)}, timeout=60)
    assert caught.value.engine_code == "unsupported_target"
    assert told is None or (caught.value.hint and told in caught.value.hint)


def test_inputs_that_do_not_fit_are_refused(
    relay: EngineSession, reference: EngineSession, untuned: Path, tmp_path: Path
) -> None:
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 8, 8]}
    made = {"inputs": [spec], "seeds": [0], "out_dir": str(tmp_path)}
    [wrong] = reference.request("make_inputs", made, timeout=60)["paths"]
    with pytest.raises(errors.EngineRequestFailed, match=r"float32\(1, 3, 16, 16\)") as caught:
        relay.request("run", {"bundle": str(untuned), "inputs": wrong, "threads": 1}, timeout=60)
    assert caught.value.engine_code == "invalid_inputs"


def test_a_damaged_bundle_is_refused(relay: EngineSession, untuned: Path, tmp_path: Path) -> None:
    for name in ("mod.so", "mod.json", "mod.params"):
        content = (untuned / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2] if name == "mod.json" else content)
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("run", {"bundle": str(tmp_path), "threads": 1}, timeout=60)
    assert caught.value.engine_code == "invalid_bundle"
